package profile

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/observe/svg"
)

// Geometry of a flame graph, in SVG units, which are pixels at the initial zoom.
const (
	flameWidth   = 1200
	flameMargin  = 10
	flameRow     = 17
	flameHead    = 62  // height of the header
	flameMinBox  = 0.4 // narrower boxes are omitted
	flameChar    = 6.6 // width of a character in the font
	maxFlameRows = 200 // deeper frames are omitted
)

// A flameNode is a box: a function called by the function of the box below it.
type flameNode struct {
	fn       *function
	count    count
	byPart   map[Part]float64 // nanoseconds of the stacks through it, by part
	children map[*function]*flameNode
}

// child returns the box of fn on top of n.
func (n *flameNode) child(fn *function) *flameNode {
	if n.children[fn] == nil {
		n.children[fn] = &flameNode{fn: fn, byPart: map[Part]float64{}, children: map[*function]*flameNode{}}
	}
	return n.children[fn]
}

// WriteFlame writes the CPU profile of a capture as a flame graph: a self-contained
// SVG. Boxes are functions, callers below their callees. The width of a box is the CPU
// time of its function including calls; its colour is the part with most of that time.
// A click zooms in on a box.
func WriteFlame(w io.Writer, c *Capture) error {
	if c.CPU == nil {
		return fmt.Errorf("profile: there is no CPU profile to draw")
	}
	r := Analyze(&Capture{Target: c.Target, Start: c.Start, Before: c.Before, After: c.After, CPU: c.CPU})
	base := &flameNode{children: map[*function]*flameNode{}}
	root, depth := base.child(newFunction("all", "")), 0
	eachSample(c.CPU, "samples", "cpu", func(stack []frame, samples, nanos int64) {
		if nanos <= 0 {
			return
		}
		part, n := partOf(stack), root
		stack = stack[max(0, len(stack)-maxFlameRows):]
		depth = max(depth, len(stack))
		for i := len(stack); ; i-- {
			n.count.add(samples, nanos)
			n.byPart[part] += float64(nanos)
			if i == 0 {
				break
			}
			n = n.child(stack[i-1].function)
		}
	})
	height := flameHead + (depth+1)*flameRow + flameMargin
	g := &flame{svg.New(flameWidth, height, "CPU time of "+c.Target), r, float64(max(root.count.nanos, 1)), height}
	g.head()
	g.node(root, flameMargin, flameWidth-2*flameMargin, 0)
	g.Add("</g>")
	_, err := g.WriteTo(w)
	return err
}

// flame is a flame graph being drawn.
type flame struct {
	*svg.Drawing
	report *Report
	total  float64 // nanoseconds
	height int
}

// flameColours has one colour per part, light enough for black text.
var flameColours = map[Part]string{
	HTTPReading: "#8fc1e3", Routing: "#a7d8de", Decoding: "#f2c879", GroupCommit: "#b8d48a", StorePart: "#7fbf8f",
	ReadingBack: "#c9b1e0", Answering: "#e8a8c4", Logging: "#d9a28a", Measuring: "#cfcf9a", GarbageCollection: "#e57f6f",
	Scheduler: "#b0b7c6", Kernel: "#d7d3cc", Other: "#ececec",
}

func (g *flame) head() {
	g.Add("<style>svg{font:11px ui-monospace,Menlo,Consolas,monospace}rect{stroke:#fff;stroke-width:.5}" +
		"#boxes g{cursor:pointer}#boxes g:hover rect{stroke:#000}text{pointer-events:none}</style>")
	g.Text(flameMargin, 20, "", fmt.Sprintf("CPU time per %s: %s µs in %s samples. %s, %s", g.report.Per, number(g.report.Total.CPUUs),
		whole(uint64(max(g.report.Total.CPUSamples, 0))), g.report.Target, g.report.Start.UTC().Format("2006-01-02 15:04:05Z")))
	x := float64(flameMargin)
	for _, part := range g.report.Parts {
		label := part.Name + " " + percent(part.CPUUs, g.report.Total.CPUUs)
		width := float64(len(label))*flameChar + 22
		if part.CPUUs <= 0 || x+width > flameWidth {
			break
		}
		g.Add(`<rect x="%.1f" y="33" width="11" height="11" fill="%s"/>`, x, flameColours[Part(part.Name)])
		g.Text(x+15, 43, "", label)
		x += width
	}
	g.Add("%s", flameScript)
	g.Add(`<g id="boxes">`)
}

// node draws a box and, above it, the boxes of its callees, the widest first.
func (g *flame) node(n *flameNode, x, width float64, level int) {
	if width < flameMinBox {
		return
	}
	y := float64(g.height - flameMargin - (level+1)*flameRow)
	part := cmp.Or(largest(n.byPart), Other)
	name, nanos := n.fn.shortName(), float64(n.count.nanos)
	g.Add(`<g><title>%s&#10;%s µs per %s, %s, %d samples&#10;%s</title><rect x="%.2f" y="%.1f" width="%.2f" height="%d" fill="%s"/>`,
		html.EscapeString(n.fn.name), number(nanos/g.total*g.report.Total.CPUUs), g.report.Per, percent(nanos, g.total), n.count.samples,
		html.EscapeString(string(part)), x, y, width, flameRow-1, flameColours[part])
	g.Text(x+3, y+12, `data-n="`+html.EscapeString(name)+`"`, fit(name, width))
	g.Add("</g>")
	for _, c := range slices.SortedFunc(maps.Values(n.children), func(a, b *flameNode) int {
		return cmp.Or(cmp.Compare(b.count.nanos, a.count.nanos), cmp.Compare(a.fn.name, b.fn.name))
	}) {
		w := width * float64(c.count.nanos) / nanos
		g.node(c, x, w, level+1)
		x += w
	}
}

// fit shortens a name to fit into a box of the given width.
func fit(name string, width float64) string {
	limit := int((width - 5) / flameChar)
	if limit < 3 {
		return ""
	}
	if chars := []rune(name); len(chars) > limit {
		return string(chars[:limit-1]) + "…"
	}
	return name
}

// flameScript zooms a box to the full width, with its callees above it and its callers
// below it. A click on the lowest box resets the zoom.
var flameScript = strings.NewReplacer(
	"%width%", fmt.Sprint(flameWidth-2*flameMargin), "%margin%", fmt.Sprint(flameMargin), "%char%", fmt.Sprint(flameChar),
).Replace(`<script><![CDATA[
(function(){
var W=%width%,M=%margin%,C=%char%,boxes=[];
function fit(n,w){var r=Math.floor((w-5)/C);return r<3?"":n.length>r?n.slice(0,r-1)+"…":n}
function zoom(b){
 boxes.forEach(function(o){
  var inside=o.x>=b.x-.01&&o.x+o.w<=b.x+b.w+.01, around=o.x<=b.x+.01&&o.x+o.w>=b.x+b.w-.01&&o.y>=b.y;
  var show=inside&&o.y<=b.y||around;
  o.g.style.display=show?"":"none";
  if(!show)return;
  var k=W/b.w, x=around?M:M+(o.x-b.x)*k, w=around?W:o.w*k;
  o.r.setAttribute("x",x);o.r.setAttribute("width",w);
  o.t.setAttribute("x",x+3);o.t.textContent=fit(o.t.getAttribute("data-n"),w);
 })}
document.addEventListener("DOMContentLoaded",start);window.addEventListener("load",start);
function start(){
 if(boxes.length)return;
 document.querySelectorAll("#boxes > g").forEach(function(g){
  var r=g.querySelector("rect"),b={g:g,r:r,t:g.querySelector("text"),x:+r.getAttribute("x"),y:+r.getAttribute("y"),w:+r.getAttribute("width")};
  boxes.push(b);g.addEventListener("click",function(){zoom(b)})})}
})();
]]></script>
`)
