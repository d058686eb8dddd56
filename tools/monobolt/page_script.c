/* SPDX-License-Identifier: MIT
 *
 * The script of pages with tables, pictures and frames. Without it they can be read all the same. It makes
 * no request, and reads its numbers from the CSV text that the page carries (<script type="text/csv">).
 */
#include "page.h"

static const char helpers[] =
    "'use strict';\n"
    "const root=document.documentElement,all=(s,from)=>[...(from||document).querySelectorAll(s)];\n"
    "const make=(tag,kind,text)=>{const e=document.createElement(tag);if(kind)e.className=kind;\n"
    "if(text!==undefined)e.textContent=text;return e};\n";

/* Light or dark: the reader's settings until the button is used; the choice is kept where that works. */
static const char theme[] =
    "{const button=make('button','theme'),dark=matchMedia('(prefers-color-scheme:dark)');\n"
    "const now=()=>root.dataset.theme||(dark.matches?'dark':'light');\n"
    "const name=()=>{button.textContent=now()==='dark'?'Light':'Dark'};\n"
    "try{const kept=localStorage.getItem('monobolt-theme');\n"
    "if(kept==='light'||kept==='dark')root.dataset.theme=kept}catch(e){}\n"
    "button.type='button';button.setAttribute('aria-label','light or dark');name();\n"
    "button.addEventListener('click',()=>{root.dataset.theme=now()==='dark'?'light':'dark';name();\n"
    "try{localStorage.setItem('monobolt-theme',root.dataset.theme)}catch(e){}});\n"
    "dark.addEventListener('change',name);document.body.prepend(button)}\n";

/* Numbers as numbers, what is missing last in both directions. */
static const char tables[] =
    "all('table.sortable').forEach(table=>{\n"
    "const body=table.tBodies[0],heads=[...table.tHead.rows[0].cells];\n"
    "const key=(row,k)=>{const cell=row.cells[k],field=cell.querySelector('[data-field]');\n"
    "const text=(field||cell).textContent.trim();\n"
    "if(text===''||text==='not reached')return null;return isNaN(text)?text:Number(text)};\n"
    "const order=(a,b)=>typeof a==='number'&&typeof b==='number'?a-b:\n"
    "String(a).localeCompare(String(b),'en',{numeric:true});\n"
    "heads.forEach((head,k)=>{const button=make('button','sort');button.type='button';\n"
    "button.append(...head.childNodes);head.append(button);\n"
    "button.addEventListener('click',()=>{const up=head.getAttribute('aria-sort')!=='ascending';\n"
    "heads.forEach(h=>h.removeAttribute('aria-sort'));\n"
    "head.setAttribute('aria-sort',up?'ascending':'descending');\n"
    "[...body.rows].sort((r,s)=>{const a=key(r,k),b=key(s,k);\n"
    "if(a===null||b===null)return(a===null)-(b===null);return up?order(a,b):order(b,a)})\n"
    ".forEach(row=>body.append(row))})})});\n";

/* The distribution of a pixel, from the lines picture,iteration,channel,kind,y,x0,... */
static const char pixels[] =
    "const files={},file=section=>{if(files[section.id])return files[section.id];const data={};\n"
    "section.querySelector('script[type=\"text/csv\"]').textContent.trim().split('\\n').slice(1)\n"
    ".forEach(line=>{const f=line.split(','),k=f.slice(0,4).join('|');\n"
    "(data[k]=data[k]||[])[f[4]]=f.slice(5)});return files[section.id]=data};\n"
    "const tip=make('div','tip');tip.hidden=true;tip.setAttribute('role','status');\n"
    "document.body.append(tip);let mark=null;\n"
    "const hide=()=>{tip.hidden=true;if(mark)mark.remove();mark=null};\n"
    "const bars=(data,picture,channel,x,y)=>{const table=make('table','c'+channel);\n"
    "for(let b=0;;++b){const lines=data[picture+'||'+channel+'|percent-'+b];if(!lines)break;\n"
    "const row=table.insertRow(),bar=make('i'),percent=lines[y][x];\n"
    "row.insertCell().textContent=b;const cell=row.insertCell();cell.className='bar';\n"
    "bar.style.width=percent+'%';cell.append(bar);\n"
    "const number=row.insertCell();number.className='percent';number.textContent=percent;\n"
    "row.insertCell().textContent='%'}return table};\n"
    "const fill=(data,picture,x,y)=>{const at=k=>data[picture+'||'+k];\n"
    "const shown=at('0|shown')[y][x]==='1',values=[];tip.textContent='';\n"
    "for(let c=0;at(c+'|original');++c)values.push(at(c+'|original')[y][x]);\n"
    "tip.append(make('span','','line '+y+', column '+x+(shown?': shown, ':': hidden, was ')+\n"
    "values.join(' ')));if(shown)return;const list=make('div');\n"
    "if(values.length>1)list.className='colours';\n"
    "values.forEach((v,c)=>list.append(bars(data,picture,c,x,y)));tip.append(list)};\n"
    "const place=(pick,x,y,size)=>{tip.style.left='0';\n"
    "const box=pick.getBoundingClientRect(),w=tip.offsetWidth;\n"
    "const left=Math.min(box.left+(x+1)*size+8,root.clientWidth-w-8);\n"
    "tip.style.left=Math.max(8,left)+scrollX+'px';\n"
    "const below=box.top+(y+1)*size+8,fits=below+tip.offsetHeight<innerHeight;\n"
    "tip.style.top=(fits?below:box.top+y*size-8-tip.offsetHeight)+scrollY+'px'};\n"
    "const show=(pick,x,y)=>{const img=pick.querySelector('img'),size=pick.clientWidth/img.naturalWidth;\n"
    "x=Math.max(0,Math.min(img.naturalWidth-1,x));y=Math.max(0,Math.min(img.naturalHeight-1,y));\n"
    "hide();fill(file(pick.closest('section')),pick.closest('[data-picture]').dataset.picture,x,y);\n"
    "mark=make('i');mark.style.cssText=`left:${x*size}px;top:${y*size}px;width:${size}px;height:${size}px`;\n"
    "pick.append(mark);pick.dataset.x=x;pick.dataset.y=y;tip.hidden=false;place(pick,x,y,size)};\n"
    "const moves={ArrowLeft:[-1,0],ArrowRight:[1,0],ArrowUp:[0,-1],ArrowDown:[0,1]};\n"
    "all('.pick').forEach(pick=>{const img=pick.querySelector('img');\n"
    "pick.tabIndex=0;pick.setAttribute('role','group');\n"
    "pick.setAttribute('aria-label',img.alt+': arrow keys choose a pixel');\n"
    "const point=e=>{const box=pick.getBoundingClientRect();\n"
    "show(pick,Math.floor((e.clientX-box.left)/box.width*img.naturalWidth),\n"
    "Math.floor((e.clientY-box.top)/box.height*img.naturalHeight))};\n"
    "pick.addEventListener('pointermove',point);pick.addEventListener('pointerdown',point);\n"
    "pick.addEventListener('pointerleave',e=>{if(e.pointerType==='mouse')hide()});\n"
    "pick.addEventListener('blur',hide);\n"
    "pick.addEventListener('keydown',e=>{if(e.key==='Escape')hide();const d=moves[e.key];if(!d)return;\n"
    "e.preventDefault();const x=pick.dataset.x===undefined?img.naturalWidth>>1:+pick.dataset.x+d[0];\n"
    "show(pick,x,pick.dataset.y===undefined?img.naturalHeight>>1:+pick.dataset.y+d[1])})});\n"
    "document.addEventListener('pointerdown',e=>{if(!e.target.closest('.pick'))hide()});\n"
    "addEventListener('resize',hide);\n";

/* One frame at a time. */
static const char frames[] =
    "all('.film').forEach(film=>{const list=all('.frame',film),label=make('label','slider');\n"
    "const range=make('input'),text=make('span');\n"
    "range.type='range';range.min=0;range.max=list.length-1;range.step=1;range.value=list.length-1;\n"
    "const turn=()=>{list.forEach((f,i)=>f.classList.toggle('now',i===+range.value));\n"
    "text.textContent='iteration '+list[range.value].dataset.iteration;\n"
    "range.setAttribute('aria-valuetext',text.textContent)};\n"
    "label.append(text,document.createElement('br'),range);film.before(label);\n"
    "film.classList.add('slides');range.addEventListener('input',turn);turn()});\n";

void page_script(FILE *out) {
    const char *const parts[] = {helpers, theme, tables, pixels, frames};
    fputs("<script>\n", out);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i) fputs(parts[i], out);
    fputs("</script>\n", out);
}
