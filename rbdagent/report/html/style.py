"""The style of the page: colours in light and dark, shapes of the states, and one style sheet."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PALETTE: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "page": ("#f3f5f8", "#0f1319"),
        "card": ("#ffffff", "#181e27"),
        "code": ("#eef1f5", "#0b0f14"),
        "line": ("#ccd3dc", "#364050"),
        "text": ("#17202b", "#e6ebf2"),
        "muted": ("#55606f", "#a3afbf"),
        "link": ("#1a56b0", "#8abaff"),
        "good": ("#12703a", "#62d394"),
        "bad": ("#b3182a", "#ff8f95"),
        "bad-card": ("#fdeef0", "#33181d"),
        "wait": ("#855300", "#f2bd5c"),
        "wait-card": ("#fff6e3", "#2e2412"),
        "unseen": ("#6236a8", "#c7a8ff"),
        "good-card": ("#e9f7ef", "#12281c"),
    }
)
"""Each colour in light and in dark. Text of every colour appears on page, card and code. Text of
``bad``, ``wait`` and ``good`` also appears on its own card. A test checks for a contrast of 4.5:1.
"""

# Each state has its own shape, so that states differ without colour.
_FULL: Final = 'fill="currentColor"'
_CUT: Final = (
    'fill="none" stroke="var(--card)" stroke-width="2.4" stroke-linecap="round"'
    ' stroke-linejoin="round"'
)
_THIN: Final = 'fill="var(--card)" stroke="currentColor" stroke-width="2.2" stroke-linecap="round"'
SHAPES: Final = MappingProxyType(
    {
        "done": f'<circle cx="12" cy="12" r="10" {_FULL}/><path d="M7.5 12.5l3 3 6-6.5" {_CUT}/>',
        "failed": f'<path d="M7.7 1.5h8.6l6.2 6.2v8.6l-6.2 6.2H7.7l-6.2-6.2V7.7z" {_FULL}/>'
        f'<path d="M8 8l8 8M16 8l-8 8" {_CUT}/>',
        "warning": f'<path d="M12 2.2L23 21.5H1z" {_FULL}/><path d="M12 9v6M12 18v.1" {_CUT}/>',
        "waiting": f'<circle cx="12" cy="12" r="9.5" {_THIN}/>'
        f'<path d="M12 6.5V12l3.6 2.4" {_THIN}/>',
        "not-started": f'<circle cx="12" cy="12" r="9.5" stroke-dasharray="2 4" {_THIN}/>',
        "not-observed": f'<path d="M12 1.5L22.5 12 12 22.5 1.5 12z" {_THIN}/>'
        f'<path d="M9.6 9.6a2.5 2.5 0 1 1 3.5 2.3c-.8.4-1.1.9-1.1 1.8M12 16.6v.1" {_THIN}/>',
        "skipped": f'<circle cx="12" cy="12" r="9.5" {_THIN}/><path d="M8 12h8" {_THIN}/>',
    }
)
"""The content of a 24 x 24 SVG drawing, by the name of the state."""


def style_sheet() -> str:
    """Return the whole style sheet."""
    light, dark = (
        "".join(f"--{name}:{pair[place]};" for name, pair in PALETTE.items()) for place in (0, 1)
    )
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{color-scheme:dark;{dark}}}}}\n"
        f"{_SHEET}"
    )


_SHEET: Final = """\
*{box-sizing:border-box;margin:0}
html{-webkit-text-size-adjust:100%;scroll-padding-top:1rem}
body{background:var(--page);color:var(--text);font:16px/1.5 Inter,system-ui,sans-serif;
  overflow-wrap:anywhere}
header,main,footer{max-width:96rem;margin:auto;padding:0 clamp(.7rem,2.5vw,2.5rem)}
header{padding-top:1.2rem;display:flex;flex-wrap:wrap;gap:.2rem 1.5rem;align-items:baseline}
header p,footer p{color:var(--muted);font-size:.86rem}
header p:first-child{font-weight:650;color:var(--text);font-size:1rem;margin-right:auto}
header code{font-weight:500;color:var(--muted);margin-left:.5rem}
footer{padding-top:1.5rem;padding-bottom:2rem}
a{color:var(--link);text-underline-offset:.15em}
code,.names{font:500 .875em/1.45 "JetBrains Mono",ui-monospace,Menlo,Consolas,monospace;
  font-variant-ligatures:none;unicode-bidi:isolate}
ul,ol{list-style:none;padding:0}
h1{font-size:clamp(1.35rem,1.1rem + 1.1vw,2rem);line-height:1.2;letter-spacing:-.015em;
  text-wrap:balance}
h2{font-size:1.15rem;letter-spacing:-.01em;margin:2.2rem 0 .8rem}
h3{font-size:1rem;line-height:1.4;display:flex;flex-wrap:wrap;gap:.2rem .7rem;align-items:center}
.icon{width:1.5rem;height:1.5rem;flex:none;color:var(--tone)}
.done,.good{--tone:var(--good);--tint:var(--good-card)}
.failed,.error,.critical{--tone:var(--bad);--tint:var(--bad-card)}
.waiting,.warning{--tone:var(--wait);--tint:var(--wait-card)}
.not-observed{--tone:var(--unseen);--tint:var(--card)}
.not-started,.skipped,.plain,.info{--tone:var(--muted);--tint:var(--card)}
.card{background:var(--card);border:1px solid var(--line);border-radius:.8rem;
  padding:1rem clamp(.7rem,1.6vw,1.3rem)}
.word{color:var(--tone);font-weight:650}
.pill{border:1.5px solid var(--tone);border-radius:2rem;background:var(--tint);
  color:var(--tone);padding:0 .6rem;font-size:.8rem;font-weight:650;white-space:nowrap}

.answer{margin-top:1rem;display:flex;gap:clamp(.7rem,1.5vw,1.2rem);background:var(--tint);
  border:2px solid var(--tone);padding:1.2rem clamp(.9rem,1.8vw,1.6rem)}
.answer .icon{--card:var(--tint);width:clamp(2rem,4vw,3.2rem);height:clamp(2rem,4vw,3.2rem)}
.answer h1{color:var(--tone)}
.answer p{margin-top:.5rem;max-width:85ch}

.stop{display:flex;flex-direction:column;min-width:0}
.box{display:grid;grid-template-columns:5.6rem 1fr;gap:0 .6rem;align-items:baseline;
  border:1.5px solid var(--line);border-radius:.6rem;background:var(--card);
  padding:.45rem .75rem .5rem;min-width:0;flex:1}
.box > *{grid-column:2;min-width:0}
.box .kind{grid-column:1;font-size:.72rem;font-weight:650;letter-spacing:.07em;
  text-transform:uppercase;color:var(--muted)}
.box.none,.box.unseen{border-style:dashed}
.box.unseen{border-color:var(--unseen)}
.box.none .names{color:var(--muted)}
.box.unseen .names{color:var(--unseen)}
.box .names + .names{margin-top:.3rem}
.mounts .names,.processes .names{font-family:inherit}
.notes{color:var(--muted);font-size:.82rem;line-height:1.4;margin-top:.1rem}
.notes li{display:inline-block}
.notes li:not(:last-child)::after{content:"\\b7";padding:0 .2em 0 .4em}

/* A link is vertical, beside its words. On a wide page it is horizontal, between its words. */
.link{position:relative;display:flex;flex-wrap:wrap;align-items:center;gap:0 .6rem;
  min-height:2.5rem;padding:.25rem 0 .25rem 2.9rem;font-size:.82rem;line-height:1.3}
.link::before{content:"";position:absolute;left:1.35rem;top:0;bottom:0;
  border:0 solid var(--tone);border-left-width:3px}
.link::after{content:"";position:absolute;left:calc(1.35rem + 1.5px - .4rem);bottom:-1px;
  border:.4rem solid transparent;border-top-color:var(--tone);border-bottom-width:0}
.back .link::after{bottom:auto;top:-1px;border:.4rem solid transparent;
  border-bottom-color:var(--tone);border-top-width:0}
.link.plain{min-height:1.1rem;--tone:var(--line)}
.link.plain::after{display:none}
.link.failed::before,.link.waiting::before{border-style:dashed}
.link.not-started::before,.link.not-observed::before{border-style:dotted}
.link .icon{position:absolute;left:calc(1.35rem + 1.5px - .75rem);top:calc(50% - .75rem)}
.link .icon,.fork .icon{background:var(--under);box-shadow:0 0 0 .2rem var(--under);
  border-radius:50%}
.link .step{font-weight:600}
.link .state{color:var(--tone);font-weight:600}
.link .result{display:flex;flex-wrap:wrap;gap:0 .5rem;align-items:center}
.link.failed .state{font-weight:750;letter-spacing:.04em}
.link.first{min-height:3.6rem}
.link.first .icon{width:2.2rem;height:2.2rem;left:calc(1.35rem + 1.5px - 1.1rem);
  top:calc(50% - 1.1rem)}
.link.first .state{background:var(--tone);color:var(--card);border-radius:.3rem;
  padding:.05rem .45rem}
.link.failed + .box{border:2px solid var(--bad)}
.picture{--under:var(--card)}

.picture > .link{margin-left:-.75rem}
.lanes{padding-left:1.6rem}
.lane{--under:var(--page);position:relative;margin-top:1rem;background:var(--page);
  border:1px solid var(--line);border-radius:.8rem;padding:.7rem clamp(.6rem,1.2vw,.9rem) .9rem}
.lane::before,.lane::after{content:"";position:absolute;left:-1rem;
  border:0 solid var(--line);border-left-width:3px}
.lane::before{top:-1rem;height:2.6rem;width:1rem;border-bottom-width:3px;
  border-bottom-left-radius:.6rem}
.lane:not(:last-child)::after{top:0;bottom:-3px}
.lane > p{color:var(--muted);font-size:.86rem}

.ways{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));
  align-items:start}
.steps{margin-top:.4rem}
.steps li{display:grid;grid-template-columns:1.5rem 5.5rem 1fr;gap:0 .8rem;padding:.4rem 0;
  border-top:1px solid var(--line);align-items:center;break-inside:avoid}
.steps li:first-child{border-top:0}
.steps .said{color:var(--muted);font-size:.88rem;grid-column:2/-1}

.findings{display:grid;gap:1rem}
.finding{border-left:.4rem solid var(--tone)}
.message{margin:.5rem 0 .7rem;max-width:100ch}
dl{display:grid;grid-template-columns:6.8rem 1fr;gap:.35rem 1rem;font-size:.92rem}
dl > div{display:contents}
dt{color:var(--muted)}
dd{min-width:0;max-width:110ch}
dd ul{list-style:disc;padding-left:1.1rem}
pre{background:var(--code);border:1px solid var(--line);border-radius:.5rem;
  padding:.4rem .7rem;white-space:pre-wrap;user-select:all;-webkit-user-select:all}
dd pre + pre{margin-top:.4rem}

.holders{display:grid;gap:1rem}
.holders dl{margin-top:.6rem;gap:.6rem 1rem;
  grid-template-columns:repeat(auto-fill,minmax(clamp(8.5rem,14vw,12.5rem),1fr))}
.holders dl > div{display:block;min-width:0}
.sources li{display:flex;gap:.7rem;padding:.35rem 0}
.sources li > div{min-width:0;flex:1}

@media (max-width:34rem){
  .box,dl{grid-template-columns:1fr}
  .box > *,.box .kind{grid-column:1}
}
@media (min-width:80rem){
  .ways > :only-child .steps{columns:2;column-gap:2.5rem}
  .trunk{display:grid;grid-template-columns:1fr 1fr 1.6fr}
  .lane ol{display:grid;grid-template-columns:1fr 1.2fr 1.1fr 1.35fr 1.25fr;margin-top:.5rem}
  .stop{flex-direction:row}
  .lane .stop:only-child{grid-column:span 2}
  .trunk > :last-child{grid-column:1/-1;flex-direction:column}
  .trunk > :last-child > .link{margin-left:calc(55.55% + 5.7rem)}
  .trunk > :not(:last-child) > .box,.lane .box{display:block}
  .trunk > :not(:last-child) > .link,.lane .link{flex:0 0 5.7rem;display:grid;
    grid-template-rows:1fr auto 1fr;padding:.2rem .4rem;gap:.2rem;justify-items:center;
    text-align:center}
  .stop .link.link.plain{flex-basis:2.4rem}
  .trunk > :not(:last-child) > .link::before,.lane .link::before{left:0;right:0;bottom:auto;
    top:calc(50% - 1.5px);border-width:3px 0 0}
  .trunk > :not(:last-child) > .link::after,.lane .link::after{left:auto;right:-1px;bottom:auto;
    top:calc(50% - .4rem);border:.4rem solid transparent;border-left-color:var(--tone);
    border-right-width:0}
  .lane.back .link::after{right:auto;left:-1px;border:.4rem solid transparent;
    border-right-color:var(--tone);border-left-width:0}
  .trunk > :not(:last-child) .link .icon,.lane .link .icon{position:relative;inset:0;grid-row:2}
  .trunk > :not(:last-child) .step,.lane .step{grid-row:1;align-self:end}
  .trunk > :not(:last-child) .result,.lane .result{grid-row:3;align-self:start;
    flex-direction:column}
}
@media print{
  @page{margin:12mm}
  body{background:none;font-size:10.5pt}
  header,main,footer{padding-left:0;padding-right:0}
  .card,.lane,.box,.stop,.steps li{break-inside:avoid}
  .answer,.pill,.link .state,.icon{print-color-adjust:exact;-webkit-print-color-adjust:exact}
  h2{break-after:avoid}
  .finding{break-inside:auto}
}
"""
