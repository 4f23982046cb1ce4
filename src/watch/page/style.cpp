#include "watch/page/page.hpp"

namespace gradwire::watch::page {

std::string_view style_sheet() {
  return R"css(
:root{color-scheme:light dark;--bg:#f7f7f5;--card:#fff;--ink:#1d2126;--soft:#5a626c;--line:#e2e2dd;--accent:#1f6a8c;
--c1:#164e68;--c2:#1f6a8c;--c3:#5c9bb8;--c4:#a5c8d8;--calm:#c8ccd2;--wait:#848c97;--bad:#b3400f;--badbg:#fcefe8;
--band:#1f6a8c33;--ink-on:#fff;--track:#ecece8}
@media (prefers-color-scheme:dark){:root{--bg:#131619;--card:#1a1e22;--ink:#e8e8e4;--soft:#a2abb5;--line:#2c3238;
--accent:#6cb4d6;--c1:#a9d6ea;--c2:#6cb4d6;--c3:#3f86a6;--c4:#285a71;--calm:#454c55;--wait:#8a929c;--bad:#f39a63;
--badbg:#35231a;--band:#6cb4d63d;--ink-on:#10181d;--track:#262b30}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
header,main,footer{max-width:1240px;margin:0 auto;padding:0 20px}
header{padding-top:28px}
h1{font-size:26px;line-height:1.2;margin:0 0 6px;letter-spacing:-.01em;font-weight:650}
h2{font-size:18px;margin:36px 0 10px;font-weight:650}
h3{font-size:15px;margin:18px 0 6px;font-weight:600}
p{margin:6px 0;max-width:78ch}
a{color:var(--accent)}
.soft,figcaption span{color:var(--soft)}
code{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.command{display:block;background:var(--card);border:1px solid var(--line);border-radius:8px;padding:9px 12px;margin:10px 0}
nav{display:flex;flex-wrap:wrap;gap:4px 16px;margin:14px 0 0;padding:8px 0;border-top:1px solid var(--line);
border-bottom:1px solid var(--line);font-size:14px}
nav a{text-decoration:none}nav a:hover{text-decoration:underline}
.facts{display:flex;flex-wrap:wrap;gap:2px 22px;margin:8px 0 0;padding:0;font-size:14px}
.facts div{display:flex;gap:6px}.facts dt{color:var(--soft)}.facts dd{margin:0}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:12px;margin:20px 0 0}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 14px}
.card b{display:block;font-size:24px;line-height:1.25;font-weight:650;letter-spacing:-.01em}
.card span{color:var(--soft);font-size:13px}
.card.bad b{color:var(--bad)}
.advice{margin:10px 0 0;padding:0;list-style:none}
.advice li{background:var(--card);border:1px solid var(--line);border-left:4px solid var(--accent);border-radius:8px;
padding:10px 14px;margin:0 0 8px}
.advice li.bad{border-left-color:var(--bad);background:var(--badbg)}
.panel{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px;margin:0 0 14px}
.grid2{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(400px,100%),1fr));gap:14px}
.grid2>.panel{margin:0}
.panel h3:first-child{margin-top:0}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 14px 8px;min-width:0}
figcaption{font-size:14px;margin:0 0 4px}
svg{display:block;width:100%;height:auto}
svg text{font-size:11px;fill:var(--soft);font-family:inherit}
svg .grid{stroke:var(--line);stroke-width:1}
.curve{fill:none;stroke:var(--accent);stroke-width:1.8;stroke-linejoin:round}
.curve.second{stroke:var(--bad);stroke-dasharray:5 3}.key .first{background:var(--accent)}.key .second{background:var(--bad)}
.band{fill:var(--band)}.dot{fill:var(--accent)}
.bad{fill:var(--bad)}
.compute{fill:var(--calm)}.exposed{fill:var(--c2)}.encode{fill:var(--c1)}.reduce{fill:var(--c2)}.decode{fill:var(--c3)}
.native{fill:var(--c4)}.wait{fill:var(--wait)}
i.k0{background:var(--c2)}i.k1{background:var(--wait)}i.k2{background:var(--c1)}i.k3{background:var(--c4)}
i.k4{background:var(--calm)}i.k5{background:var(--c3)}
.lane{display:grid;grid-template-columns:110px 1fr;gap:10px;align-items:center;font-size:13px}
.lane .bar{margin:3px 0;border-radius:4px}.lane i{font-style:normal;color:var(--ink-on);white-space:nowrap;overflow:hidden;
line-height:26px;padding-left:0;text-indent:6px}.lane i.k3,.lane i.k4{color:var(--ink)}
.ends{display:flex;justify-content:space-between;color:var(--soft);font-size:13px;margin-left:120px}
.bar{display:flex;height:26px;border-radius:6px;overflow:hidden;background:var(--track);margin:6px 0 8px}
.bar i{display:block;min-width:1px}
.bar .compute,.key .compute{background:var(--calm)}.bar .exposed,.key .exposed{background:var(--c2)}
.bar .encode,.key .encode{background:var(--c1)}.bar .reduce,.key .reduce{background:var(--c2)}
.bar .decode,.key .decode{background:var(--c3)}.bar .native,.key .native{background:var(--c4)}
.bar .wait,.key .wait{background:var(--wait)}
.key{display:flex;flex-wrap:wrap;gap:2px 18px;margin:0 0 4px;padding:0;list-style:none;font-size:14px}
.key i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px}
.key b{font-weight:600}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:10px;margin:0 0 14px}
.scroll:focus-visible{outline:2px solid var(--accent)}
table{border-collapse:collapse;width:100%;font-size:13.5px;overflow-wrap:normal}
caption{text-align:left;padding:10px 12px 4px;color:var(--soft)}
th,td{padding:6px 9px;text-align:left;border-top:1px solid var(--line)}
td.n,th.n{white-space:nowrap}
td.text{min-width:14em}
thead th.n{white-space:normal;vertical-align:bottom}
abbr{text-decoration:underline dotted var(--soft);text-underline-offset:3px;cursor:help}
i.v{font-style:normal}
thead th{border-top:0;color:var(--soft);font-weight:550;font-size:13px}
tbody th{font-weight:550}
.n{text-align:right}
tr.slow td,tr.slow th{background:var(--badbg)}
.mark{color:var(--bad);font-weight:650}
.meter{display:block;width:64px;height:8px;border-radius:4px;background:var(--track);overflow:hidden}
.meter i{display:block;height:8px;background:var(--accent)}
details{margin:0 0 14px}summary{cursor:pointer;padding:6px 0;color:var(--accent)}
ul.notes{margin:6px 0;padding-left:20px}
footer{color:var(--soft);font-size:13px;padding-top:24px;padding-bottom:40px}
@media (max-width:520px){header,main,footer{padding-left:14px;padding-right:14px}h1{font-size:22px}
.cards{grid-template-columns:1fr 1fr;gap:8px}.card{padding:10px 12px}.card b{font-size:20px}svg text{font-size:14px}}
@media print{body{background:#fff}nav{display:none}}
)css";
}

}  // namespace gradwire::watch::page
