# SPDX-License-Identifier: MIT
"""Monobolt's files, read without Monobolt: specs (INI) and networks (safetensors)."""

import configparser
import copy
import json
import zlib
from dataclasses import dataclass, replace

import numpy as np

DTYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U64": "<u8", "U8": "u1",
          "F16": "<f2"}


# ------------------------------------------------------------------------ specs --


@dataclass
class Tier:
    """A grid of cells with `groups` variables of `k` categories each; ||A_v||^2 may be as large
    as gain (1-m). Its row space has the same cells, of `rows` channels each."""

    name: str
    height: int
    width: int
    groups: int
    k: int
    gain: float
    rows: int

    @property
    def channels(self):
        return self.groups * self.k

    @property
    def cells(self):
        return self.height * self.width

    @property
    def size(self):
        return self.cells * self.channels

    @property
    def variables(self):
        return self.cells * self.groups


@dataclass
class Block:
    """A_ij: tier j = `column` into row space i = `row`, as indices of tiers; or the link U_ij,
    from tier j to tier i: a relay if it hears all, not only what is observed."""

    row: int
    column: int
    dense: bool
    kernel: int
    stride: int
    relay: bool = False

    @property
    def padding(self):
        return (self.kernel - 1) // 2


class Spec:
    """The parts of a spec that the peer needs. Of what the paper does not use (full padding,
    even kernels, mixed cardinalities) it knows nothing, and says so."""

    def __init__(self, text):
        self.ini = configparser.ConfigParser(
            comment_prefixes=(";", "#"), inline_comment_prefixes=(";",), interpolation=None
        )
        self.ini.read_string(text)
        self.m = self.number("model", "m", 0)
        self.monotone = self.flag("model", "monotone", True)
        self.center = self.flag("model", "center", False)
        titles = [title.split() for title in self.ini.sections()]
        self.tiers = [self._tier(title[1]) for title in titles if title[0] == "tier"]
        self.index = {tier.name: i for i, tier in enumerate(self.tiers)}
        self.blocks = [self._block(*title) for title in titles if title[0] == "block"]
        self.links = [self._block(*title) for title in titles if title[0] == "link"]
        # Tiers that are `given` need no name here: they are observed, and no loss reads them.
        self.images = [self.index[name] for name in self.ini.get("data", "image").split()]
        label = self.ini.get("data", "label", fallback=None)
        self.label = None if label is None else self.index[label]
        self.stop = self.ini.get("solver", "stop", fallback="residual")
        self.relays = [link for link in self.links if link.relay]
        self.layers = self._layers()
        self.kept = [t for t in range(len(self.tiers)) if t not in self.layers]
        self.inner = self._inner() if self.relays else None

    def number(self, section, key, fallback):
        return self.ini.getfloat(section, key, fallback=fallback)

    def flag(self, section, key, fallback):
        return self.ini.getboolean(section, key, fallback=fallback)

    def _tier(self, name):
        section = self.ini[f"tier {name}"]
        cardinality = section["cardinality"]
        if not cardinality.isdigit():
            raise SystemExit(f"tier {name}: the peer has no tiers of mixed cardinality")
        height, width = map(int, section.get("grid", "1x1").split("x"))
        groups, k = section.getint("groups", 1), int(cardinality)
        return Tier(name, height, width, groups, k, section.getfloat("gain", 1),
                    section.getint("rows", 0) or groups * k)

    def _block(self, kind, row, column):
        section = self.ini[f"{kind} {row} {column}"]
        kernel = section.getint("kernel", 1)
        if section.get("padding", "same") != "same" or kernel % 2 == 0:
            raise SystemExit(f"{kind} {row} {column}: the peer knows odd kernels and same padding")
        return Block(self.index[row], self.index[column], section.get("kind") == "dense", kernel,
                     section.getint("stride", 1), section.get("hears") == "all")

    def _layers(self):
        """Tiers that are no part of the fixed point, in the order in which they are computed: those
        without blocks that relays lead to or come from; all tiers, if there are relays and no blocks."""
        if not self.relays:
            return []
        coupled = {t for block in self.blocks for t in (block.row, block.column)}
        for relay in self.relays:
            if relay.row in coupled:
                raise SystemExit(f"{self.title(relay)}: the peer knows relays (hears = all) to tiers "
                                 f"without blocks, and {self.tiers[relay.row].name} has some")
        if self.blocks:
            left = {t for relay in self.relays for t in (relay.row, relay.column)} - coupled
        else:
            left = set(range(len(self.tiers)))
        layers = []
        while left:
            waiting = {relay.row: relay for relay in self.relays if relay.column in left}
            found = sorted(left - waiting.keys())
            if not found:
                raise SystemExit(f"{self.title(waiting.popitem()[1])}: relays lead back to where they "
                                 "come from")
            layers += found
            left -= set(found)
        return layers

    def _inner(self):
        """The spec of the tiers that stay in the fixed point, without links: these may come from
        tiers that are not there."""
        inner, at = copy.copy(self), {t: i for i, t in enumerate(self.kept)}
        inner.tiers = [self.tiers[t] for t in self.kept]
        inner.index = {tier.name: i for i, tier in enumerate(inner.tiers)}
        inner.blocks = [replace(b, row=at[b.row], column=at[b.column]) for b in self.blocks]
        inner.kept = list(range(len(inner.tiers)))
        inner.links, inner.relays, inner.layers, inner.images, inner.label = [], [], [], [], None
        return inner

    def title(self, link):
        return f"link {self.tiers[link.row].name} {self.tiers[link.column].name}"

    @property
    def size(self):
        return sum(tier.size for tier in self.tiers)

    def with_settings(self, **sections):
        """The text again, with sections={"key": value} replaced."""
        for section, values in sections.items():
            if not self.ini.has_section(section):
                self.ini.add_section(section)
            for key, value in values.items():
                self.ini.set(section, key, str(value))
        lines = []
        for section in self.ini.sections():
            lines.append(f"[{section}]")
            lines += [f"{key} = {value}" for key, value in self.ini.items(section)]
        return "\n".join(lines) + "\n"

    def weight_shape(self, block):
        row, column = self.tiers[block.row], self.tiers[block.column]
        if block.dense:
            return (row.cells * row.rows, column.size)
        return (row.rows, column.channels, block.kernel, block.kernel)

    def link_shape(self, link):
        to, source = self.tiers[link.row], self.tiers[link.column]
        if link.dense:
            return (source.size, to.size)
        return (link.kernel, link.kernel, source.channels, to.channels)

    def name(self, kind, block):
        return f"{kind}.{self.tiers[block.row].name}.{self.tiers[block.column].name}"

    def tensors(self):
        """Names and shapes of all parameters, in the order of Monobolt's gradient."""
        shapes = {}
        for block in self.blocks:
            shapes[self.name("weights", block)] = self.weight_shape(block)
        for tier in self.tiers:
            shapes[f"bias.{tier.name}"] = (tier.height, tier.width, tier.channels)
        for link in self.links:
            shapes[self.name("link", link)] = self.link_shape(link)
        per_pixel = self.flag("train", "temperature_per_pixel", True)
        image = self.tiers[self.images[0]].cells if per_pixel else 1
        shapes["log_temperature.image_then_label"] = (image + (self.label is not None),)
        return shapes


# --------------------------------------------------------------------- networks --


def read_network(path):
    """(arrays by name, metadata) of a safetensors file."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        data = file.read()
    metadata = header.pop("__metadata__", {})
    arrays = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        flat = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]])
        arrays[name] = flat.reshape(entry["shape"])
    return arrays, metadata


def write_network(path, arrays, metadata):
    """The reverse, with the checksum: CRC-32 of the file whose checksum digits are zeros."""
    names = {np.dtype(code): name for name, code in DTYPES.items()}
    header, data = {"__metadata__": dict(metadata, checksum="crc32:00000000")}, b""
    for name, array in arrays.items():
        begin, data = len(data), data + array.tobytes()
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape),
                        "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    whole = len(text).to_bytes(8, "little") + text + data
    digits = f"crc32:{zlib.crc32(whole):08x}".encode()
    with open(path, "wb") as file:
        file.write(whole.replace(b"crc32:00000000", digits, 1))


def is_network(path):
    return path.endswith(".safetensors")


def read_spec(path):
    """The spec in a spec file or in a network."""
    try:
        if is_network(path):
            return Spec(read_network(path)[1]["spec"])
        with open(path, encoding="utf-8") as file:
            return Spec(file.read())
    except (OSError, ValueError, KeyError, configparser.Error) as error:
        raise SystemExit(f"{path}: {error}") from error
