// The report's style sheet: two themes by the reader's own setting, one column on a narrow screen.
#pragma once

namespace moeloom {

inline constexpr const char* kReportStyle = R"css(
:root{color-scheme:light dark;--page:#f6f6f3;--card:#fff;--ink:#1d2126;--soft:#626a73;--rule:#e3e3de;
--main:#1f6f8b;--faint:#9cc4d1;--second:#c8552d;--good:#2c7a51;
--p0:#1f6f8b;--p1:#e0a030;--p2:#7a5195;--p3:#4e9a6b;--p4:#c8552d;--p5:#7f8fa6;--p6:#b5838d;--p7:#c3c3bb;--p8:#8a6d3b}
@media (prefers-color-scheme:dark){:root{--page:#14171a;--card:#1d2125;--ink:#e7e9ea;--soft:#98a1aa;--rule:#30363c;
--main:#5cb8d6;--faint:#2f5f70;--second:#f0875f;--good:#6cc795;
--p0:#4aa3c0;--p1:#e3b04b;--p2:#a684c4;--p3:#6bbd8b;--p4:#e8784f;--p5:#8fa0b8;--p6:#cf9aa5;--p7:#5b6168;--p8:#b8976a}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 48px}
h1{font-size:26px;font-weight:650;margin:0 0 2px;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:15px;font-weight:650;margin:0 0 2px}
.note{color:var(--soft);font-size:13px;margin:0 0 10px}
.numbers{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:20px 0 12px}
.numbers div,section{background:var(--card);border:1px solid var(--rule);border-radius:10px}
.numbers div{padding:12px 14px}
.numbers b{display:block;font-size:24px;font-weight:600;line-height:1.2;font-variant-numeric:tabular-nums}
.numbers span{color:var(--soft);font-size:13px}
.numbers .first b{color:var(--main)}
.grid{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:12px}
.grid .wide{grid-column:1/-1}
@media (max-width:820px){.grid{grid-template-columns:minmax(0,1fr)}}
section{padding:14px 16px;min-width:0}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{fill:var(--soft);font:13px system-ui,-apple-system,"Segoe UI",sans-serif;font-variant-numeric:tabular-nums}
@media (max-width:520px){svg text{font-size:16px}svg .upright{display:none}}
svg .grid{stroke:var(--rule);stroke-width:1}
svg .axis{stroke:var(--soft);stroke-width:1}
path{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
path.main{stroke:var(--main)}path.faint{stroke:var(--faint);stroke-width:1}path.second{stroke:var(--second)}
path.value{stroke:var(--second);stroke-width:1.5;stroke-dasharray:2 4}
.dot{stroke:var(--card);stroke-width:1}
.dot.main,.dot.faint{fill:var(--main)}.dot.second,.dot.value{fill:var(--second)}
.hit{fill:transparent}.hit:hover{fill:var(--ink);fill-opacity:.07}
.map{fill:var(--second);shape-rendering:crispEdges}.map rect:hover,rect[class^=p]:hover{stroke:var(--ink);stroke-width:1}
.mark{fill:none;stroke:var(--ink);stroke-width:2;stroke-dasharray:5 3;pointer-events:stroke}
line.event{stroke:var(--second);stroke-width:1;stroke-dasharray:4 3}svg .event text{fill:var(--second)}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;align-items:center;margin:0 0 6px;color:var(--soft);font-size:13px}
.legend i{display:inline-block;width:16px;height:3px;border-radius:2px;margin-right:6px;vertical-align:middle}
.legend .ramp{width:110px;height:10px;margin:0;border-radius:3px;background:var(--second);
background:linear-gradient(90deg,transparent,var(--second));border:1px solid var(--rule)}
i.main{background:var(--main)}i.faint{background:var(--faint)}i.second,i.value{background:var(--second)}
table{border-collapse:collapse;width:100%;font-size:14px}
th{color:var(--soft);font-weight:500;text-align:left}
th,td{padding:5px 10px 5px 0;border-bottom:1px solid var(--rule);vertical-align:top;overflow-wrap:anywhere}
tr:last-child td{border-bottom:0}
.phases{margin-top:8px}
.phases th+th,.phases td+td{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;padding-right:0;padding-left:12px}
.phases i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:8px}
.phases .sum td{font-weight:600}
.facts td:first-child,.kernels td:first-child{white-space:nowrap;color:var(--soft);padding-right:18px}
.kernels td:first-child{color:var(--ink);font-family:ui-monospace,Menlo,Consolas,monospace;font-size:13px}
.yes,.no{white-space:nowrap}.yes{color:var(--good);font-weight:600}.no{color:var(--soft)}
pre{margin:6px 0 0;font:13px/1.5 ui-monospace,Menlo,Consolas,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
pre b{font-weight:400;color:var(--soft)}
.sample{font-size:14px}
.config{columns:3 220px;column-gap:28px}
)css"
                                            // A phase's colour is the same in the bar and in its table.
                                            R"css(
rect.p0{fill:var(--p0)}rect.p1{fill:var(--p1)}rect.p2{fill:var(--p2)}rect.p3{fill:var(--p3)}
rect.p4{fill:var(--p4)}rect.p5{fill:var(--p5)}rect.p6{fill:var(--p6)}rect.p7{fill:var(--p7)}
i.p0{background:var(--p0)}i.p1{background:var(--p1)}i.p2{background:var(--p2)}i.p3{background:var(--p3)}
i.p4{background:var(--p4)}i.p5{background:var(--p5)}i.p6{background:var(--p6)}i.p7{background:var(--p7)}
rect.p8{fill:var(--p8)}i.p8{background:var(--p8)}
)css"
                                            // Lines of a comparison, and tables wider than the page.
                                            R"css(
path.p0{stroke:var(--p0)}path.p1{stroke:var(--p1)}path.p2{stroke:var(--p2)}path.p3{stroke:var(--p3)}
path.p4{stroke:var(--p4)}path.p5{stroke:var(--p5)}path.p6{stroke:var(--p6)}path.p7{stroke:var(--p7)}
path.p8{stroke:var(--p8)}
.dot.p0{fill:var(--p0)}.dot.p1{fill:var(--p1)}.dot.p2{fill:var(--p2)}.dot.p3{fill:var(--p3)}
.dot.p4{fill:var(--p4)}.dot.p5{fill:var(--p5)}.dot.p6{fill:var(--p6)}.dot.p7{fill:var(--p7)}.dot.p8{fill:var(--p8)}
.legend .block{width:11px;height:11px;border-radius:3px}
.answer{margin:6px 0 10px}
.scroll{overflow-x:auto}
.points{font-size:13px;font-variant-numeric:tabular-nums;white-space:nowrap}
.points td,.points th{overflow-wrap:normal;padding-right:16px}
.points .number{text-align:right}
.points .range{display:block;color:var(--soft)}
)css";

}  // namespace moeloom
