# SPDX-License-Identifier: MIT
"""usage: clicks.py FOLDER...: what a reader does with index.html, in headless Chromium."""
import csv
import os
import re
import sys

import browser

ZOOMED = "[...document.querySelectorAll('.zoom')]"


def rows_of(folder, target):
    with open(os.path.join(folder, target + ".csv"), encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def load(b, folder, width=1100, height=900, mobile=False, scheme="light"):
    b.window(width, height, mobile)
    b.scheme(scheme)
    b.open(os.path.join(folder, "index.html"))


def column(b, table, k):
    """What a column shows, from the top."""
    return b.run(f"[...({table}).tBodies[0].rows].map(r=>(r.cells[{k}].querySelector('[data-field]')||"
                 f"r.cells[{k}]).textContent)")


def heads_sort(b, folder):
    load(b, folder)
    tables = b.run("document.querySelectorAll('table.sortable').length")
    assert tables >= 3, tables
    moved = 0
    for t in range(tables):
        table = f"document.querySelectorAll('table.sortable')[{t}]"
        heads = b.run(f"({table}).tHead.rows[0].cells.length")
        for k in sorted({1, min(2, heads - 1), heads - 1}):
            before = column(b, table, k)
            head = f"({table}).tHead.rows[0].cells[{k}]"
            x, y, w, h = b.box(f"({head}).querySelector('button')")
            for direction in ("ascending", "descending"):
                b.click(x + w / 2, y + h / 2)
                assert b.run(f"({head}).getAttribute('aria-sort')") == direction
                now = column(b, table, k)
                values = [float(v) for v in now if v not in ("", "not reached")]
                assert values == sorted(values, reverse=direction == "descending"), (t, now)
                assert now[len(values):] == [v for v in now if v in ("", "not reached")], now
                assert sorted(now) == sorted(before), (now, before)
                moved += now != before
        x, y, w, h = b.box(f"({table}).tHead.rows[0].cells[0].querySelector('button')")
        b.click(x + w / 2, y + h / 2)
        assert b.run(f"({head}).getAttribute('aria-sort')") is None
    assert moved > 0


def slider_turns_frames(b, folder):
    load(b, folder)
    for section in ("patch", "patch-label", "extrapolate-mnist", "extrapolate-cifar"):
        rows = [r for r in rows_of(folder, section) if r[0] == "frames"]
        want = {n: {r[3]: r[4] for r in rows if r[1] == n} for n in ("update residual", "certificate")}
        last = len(want["certificate"]) - 1
        where = f"document.querySelector('#{section} .film')"
        range_ = f"document.querySelector('#{section} input[type=range]')"
        x, y, w, h = b.box(range_)
        b.click(x + w - 4, y + h / 2) # the right end, and the focus
        seen = {}
        for k in range(last, -1, -1):
            text = b.run(f"({where}).querySelector('.now').innerText")
            visible = b.run(f"[...({where}).querySelectorAll('.frame')].filter(f=>f.offsetWidth).length")
            assert visible == 1, visible
            found = re.findall(r"(iteration|residual|certificate) ([-+.e\d]+)", text)
            assert dict(found) == {"iteration": str(k), "residual": want["update residual"][str(k)],
                                   "certificate": want["certificate"][str(k)]}, (section, k, text)
            b.settle()
            box = b.box(f"({where}).querySelector('.now .zoom')")
            scroll = b.run("scrollY")
            seen[k] = b.picture([box[0], box[1] + scroll, box[2], box[3]])
            b.key("ArrowLeft")
        assert seen[0] != seen[last], section
        b.key("End")
        assert b.run(f"({where}).querySelector('.now').dataset.iteration") == str(last)
        x, y, w, h = b.box(range_)
        b.click(x + 3, y + h / 2) # the left end, by the mouse
        assert b.run(f"({where}).querySelector('.now').dataset.iteration") == "0"


def tip(b):
    return b.run("(t=>t.hidden?null:[t.querySelector('span').textContent,"
                 "[...t.querySelectorAll('.percent')].map(e=>e.textContent),"
                 "[...t.querySelectorAll('.bar i')].map(e=>e.style.width)])(document.querySelector('.tip'))")


class Pixels:
    """TARGET-pixels.csv, read apart from the page."""

    def __init__(self, folder, section):
        rows = rows_of(folder, section + "-pixels")
        self.width = len(rows[0]) - 5
        self.field = {(*r[:5], str(x)): v for r in rows[1:] for x, v in enumerate(r[5:])}
        self.pictures = list(dict.fromkeys(r[0] for r in rows[1:]))
        self.channels = sorted({r[2] for r in rows[1:]})
        self.bins = sorted({r[3] for r in rows[1:] if r[3].startswith("percent-")})
        self.height = 1 + max(int(r[4]) for r in rows[1:])

    def want(self, picture, x, y):
        at = lambda channel, kind: self.field[(picture, "", channel, kind, str(y), str(x))]
        values = " ".join(at(c, "original") for c in self.channels)
        shown = at("0", "shown") == "1"
        percents = [] if shown else [at(c, b) for c in self.channels for b in self.bins]
        return [f"line {y}, column {x}: " + ("shown, " if shown else "hidden, was ") + values, percents,
                [v + "%" for v in percents]]

    def hidden(self, picture):
        return [(x, y) for y in range(self.height) for x in range(self.width)
                if self.field[(picture, "", "0", "shown", str(y), str(x))] == "0"]


def point(b, pick, pixels, x, y, act):
    left, top, w, h = b.box(pick)
    act(left + (x + 0.5) * w / pixels.width, top + (y + 0.5) * h / pixels.height)


def pixels_show_distributions(b, folder):
    load(b, folder)
    for section in ("patch", "patch-label", "extrapolate-mnist", "extrapolate-cifar"):
        pixels = Pixels(folder, section)
        differ = set()
        for i, picture in enumerate(pixels.pictures[:3]):
            card = f"document.querySelectorAll('#{section} .card')[{i}]"
            places = pixels.hidden(picture)
            shown = next((x, y) for y in range(pixels.height) for x in range(pixels.width)
                         if (x, y) not in places)
            for which in (0, 1): # the completion, and its entropy
                pick = f"({card}).querySelectorAll('.pick')[{which}]"
                for x, y in (places[0], places[len(places) // 2], places[-1], shown):
                    point(b, pick, pixels, x, y, b.move)
                    assert tip(b) == pixels.want(picture, x, y), (section, picture, x, y, tip(b))
                    differ.add(str(tip(b)[1]))
            b.move(2, 2)
            assert tip(b) is None
        assert len(differ) > 4
    pick = f"document.querySelector('#{section} .pick')"
    x, y = pixels.hidden(pixels.pictures[0])[0]
    point(b, pick, pixels, x, y, b.click)
    b.run(f"({pick}).focus()")
    b.key("ArrowDown")
    assert tip(b) == pixels.want(pixels.pictures[0], x, min(y + 1, pixels.height - 1)), tip(b)
    b.key("ArrowLeft")
    assert tip(b) == pixels.want(pixels.pictures[0], max(x - 1, 0), min(y + 1, pixels.height - 1)), tip(b)


def phone_fits(b, folder):
    load(b, folder, 390, 844, mobile=True)
    b.call("Emulation.setTouchEmulationEnabled", enabled=True)
    assert b.run("document.scrollingElement.scrollWidth") <= 390
    pixels = Pixels(folder, "patch")
    x, y = pixels.hidden(pixels.pictures[0])[-1]
    point(b, "document.querySelector('#patch .pick')", pixels, x, y, b.tap)
    assert tip(b) == pixels.want(pixels.pictures[0], x, y), tip(b)
    left, right = b.run("(b=>[b.left,b.right])(document.querySelector('.tip').getBoundingClientRect())")
    assert 0 <= left < right <= 390, (left, right)
    b.tap(5, 5)
    assert tip(b) is None
    b.call("Emulation.setTouchEmulationEnabled", enabled=False)


def zooms_are_whole(b, folder):
    for width, mobile in ((1100, False), (700, False), (390, True)):
        load(b, folder, width, 900, mobile)
        sizes = b.run(ZOOMED + ".filter(z=>z.offsetWidth).map(z=>[z.getBoundingClientRect().width,"
                      "z.getBoundingClientRect().height,z.firstChild.naturalWidth,"
                      "z.firstChild.naturalHeight,getComputedStyle(z.firstChild).imageRendering])")
        assert len(sizes) > 24
        for w, h, nw, nh, rendering in sizes:
            assert w % nw == 0 and w > nw and h / nh == w / nw and rendering == "pixelated", (w, h, nw, nh)


def light_and_dark(b, folder):
    paper = "getComputedStyle(document.body).backgroundColor"
    colours = {}
    for scheme in ("light", "dark"):
        load(b, folder, scheme=scheme)
        b.run("localStorage.clear()")
        load(b, folder, scheme=scheme)
        colours[scheme] = b.run(paper)
        x, y, w, h = b.box("document.querySelector('.theme')")
        curve = "document.querySelector('.curves')"
        b.box(curve)
        b.settle()
        seen = b.picture()
        x, y, w, h = b.box("document.querySelector('.theme')")
        b.click(x + w / 2, y + h / 2)
        colours[scheme + ", clicked"] = b.run(paper)
        b.box(curve)
        b.settle()
        assert b.picture() != seen
    assert colours["light"] != colours["dark"]
    assert colours["light, clicked"] == colours["dark"], colours
    assert colours["dark, clicked"] == colours["light"], colours
    load(b, folder, scheme="dark") # the choice is kept
    assert b.run(paper) == colours["light"]
    b.run("localStorage.clear()")


def nothing_is_requested_or_thrown(b, folder):
    load(b, folder)
    b.settle()
    for event in b.events:
        if event["method"] == "Network.requestWillBeSent":
            address = event["params"]["request"]["url"]
            assert address.startswith("data:") or address.endswith("/index.html"), address
        assert event["method"] != "Runtime.exceptionThrown", event
        if event["method"] == "Log.entryAdded":
            assert event["params"]["entry"]["level"] != "error", event


def tables_and_pictures_need_no_script(b, folder):
    b.call("Emulation.setScriptExecutionDisabled", value=True)
    load(b, folder)
    root = b.call("DOM.getDocument", depth=-1)["root"]["nodeId"]
    count = lambda s: b.call("DOM.querySelectorAll", nodeId=root, selector=s)["nodeIds"]
    frames = count("#patch .frame")
    assert len(frames) >= 3 and not count(".theme, .sort, input")
    for node in frames + count("#patch .zoom") + count("#patch table.sortable"):
        box = b.call("DOM.getBoxModel", nodeId=node)["model"]
        assert box["width"] > 0 and box["height"] > 0
    b.call("Emulation.setScriptExecutionDisabled", value=False)


def keep_pictures(b, folder):
    """For looking at."""
    for name, width, mobile in (("desktop", 1100, False), ("phone", 390, True)):
        for scheme in ("light", "dark"):
            load(b, folder, width, 1400, mobile, scheme)
            b.run("document.querySelector('#patch').scrollIntoView()")
            b.settle()
            with open(os.path.join(folder, f"{name}-{scheme}.png"), "wb") as out:
                out.write(b.picture())


tests = [heads_sort, slider_turns_frames, pixels_show_distributions, phone_fits, zooms_are_whole,
         light_and_dark, nothing_is_requested_or_thrown, tables_and_pictures_need_no_script]
if browser.find() is None:
    for test in tests:
        print(f"[ RUN      ] {test.__name__}")
        print(f"[  SKIPPED ] {test.__name__}: Chromium is not installed (scripts/install-deps browser)")
    sys.exit(0)
failed = 0
b = browser.Browser()
try:
    for folder in sys.argv[1:]:
        # of the second page only what depends on its pictures
        for test in tests if folder == sys.argv[1] else tests[1:5]:
            print(f"[ RUN      ] {test.__name__} ({folder})", flush=True)
            try:
                test(b, folder)
                print(f"[       OK ] {test.__name__} ({folder})")
            except AssertionError as error:
                failed = 1
                line = error.__traceback__.tb_next.tb_lineno if error.__traceback__.tb_next else 0
                print(f"[  FAILED  ] {test.__name__} ({folder}): line {line}: {error}")
        if os.environ.get("MB_KEEP_PICTURES"):
            keep_pictures(b, folder)
finally:
    b.close()
sys.exit(failed)
