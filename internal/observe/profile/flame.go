package profile

import (
	"bufio"
	"cmp"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
)

// Geometry of a flame graph, in SVG units, which are pixels at first.
const (
	flameWidth   = 1200
	flameMargin  = 10
	flameRow     = 17
	flameHead    = 62  // above the boxes
	flameMinBox  = 0.4 // narrower boxes are left out
	flameChar    = 6.6 // width of a character of the font below
	maxFlameRows = 200 // deeper frames are left out
)

// A flameNode is a box: a function, called by the box below it.
type flameNode struct {
	fn       *function
	count    Count
	byPart   map[Part]int64 // nanoseconds, of the stacks through it
	children map[*function]*flameNode
}

// WriteFlame writes the CPU profile of a capture as a flame graph: an SVG that
// needs nothing but itself. Boxes are functions, callers below their callees; a
// box is as wide as the CPU time of its function with everything that it calls,
// and has the colour of the part that most of its time is for. A click magnifies
// a box.
func WriteFlame(w io.Writer, c *Capture) error {
	if c.CPU == nil {
		return fmt.Errorf("profile: there is no CPU profile to draw")
	}
	r := Analyze(&Capture{Target: c.Target, Start: c.Start, Before: c.Before, After: c.After, CPU: c.CPU})
	root, depth := flameTree(c)
	return buffered(w, func(b *bufio.Writer) {
		g := &flame{out: b, report: r, divisor: r.Divisor(r.CPUWindow), total: max(root.count.Nanos, 1), height: flameHead + (depth+1)*flameRow + flameMargin}
		g.head()
		g.node(root, flameMargin, flameWidth-2*flameMargin, 0)
		b.WriteString("</g>\n</svg>\n")
	})
}

// flameTree merges the stacks of the CPU profile and returns how deep they are.
func flameTree(c *Capture) (root *flameNode, depth int) {
	newNode := func(fn *function) *flameNode {
		return &flameNode{fn: fn, byPart: map[Part]int64{}, children: map[*function]*flameNode{}}
	}
	root = newNode(newFunction("all", ""))
	samplesAt, nanosAt := valueIndex(c.CPU, "samples", "count"), valueIndex(c.CPU, "cpu", "nanoseconds")
	if samplesAt < 0 || nanosAt < 0 {
		return root, 0
	}
	frames := newFrames()
	for _, s := range c.CPU.Sample {
		count := Count{s.Value[samplesAt], s.Value[nanosAt]}
		if count.Nanos <= 0 {
			continue
		}
		stack := frames.stack(s)
		part := partOf(stack)
		n := root
		n.count.add(count)
		n.byPart[part] += count.Nanos
		level := 0
		for _, f := range slices.Backward(stack) {
			if level == maxFlameRows {
				break
			}
			level++
			child := n.children[f.function]
			if child == nil {
				child = newNode(f.function)
				n.children[f.function] = child
			}
			n = child
			n.count.add(count)
			n.byPart[part] += count.Nanos
		}
		depth = max(depth, level)
	}
	return root, depth
}

// flame writes one graph.
type flame struct {
	out     *bufio.Writer
	report  *Report
	divisor float64
	total   int64 // nanoseconds
	height  int
}

// flameColours are one for each part, light enough for black text.
var flameColours = map[Part]string{
	HTTPReading: "#8fc1e3", Routing: "#a7d8de", Decoding: "#f2c879", GroupCommit: "#b8d48a", StorePart: "#7fbf8f",
	ReadingBack: "#c9b1e0", Answering: "#e8a8c4", Logging: "#d9a28a", Measuring: "#cfcf9a", GarbageCollection: "#e57f6f",
	Scheduler: "#b0b7c6", Kernel: "#d7d3cc", Other: "#ececec",
}

func (g *flame) head() {
	fmt.Fprintf(g.out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="11">
<title>CPU time of %s</title>
<style>rect{stroke:#fff;stroke-width:.5}#boxes g{cursor:pointer}#boxes g:hover rect{stroke:#000}text{pointer-events:none}</style>
<rect width="100%%" height="100%%" fill="#fff"/>
`, flameWidth, g.height, flameWidth, g.height, html.EscapeString(g.report.Target))
	g.text(flameMargin, 20, fmt.Sprintf("CPU time per %s: %s µs in %s samples. %s, %s", g.report.unit(),
		number(float64(g.total)/1e3/g.divisor), whole(uint64(max(g.report.Total.CPU.Samples, 0))), g.report.Target, g.report.Start.UTC().Format("2006-01-02 15:04:05Z")))
	x := float64(flameMargin)
	for _, row := range g.report.Parts {
		if row.CPU.Nanos <= 0 {
			continue
		}
		label := row.Name + " " + percent(float64(row.CPU.Nanos), float64(g.total))
		width := float64(len(label))*flameChar + 22
		if x+width > flameWidth {
			break
		}
		fmt.Fprintf(g.out, `<rect x="%.1f" y="33" width="11" height="11" fill="%s"/>`, x, flameColours[Part(row.Name)])
		g.text(x+15, 43, label)
		x += width
	}
	g.out.WriteString(flameScript)
	g.out.WriteString("<g id=\"boxes\">\n")
}

func (g *flame) text(x, y float64, s string) {
	fmt.Fprintf(g.out, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x, y, html.EscapeString(s))
}

// node writes a box and, on top of it, those that it calls, the widest first.
func (g *flame) node(n *flameNode, x, width float64, level int) {
	if width < flameMinBox {
		return
	}
	y := float64(g.height - flameMargin - (level+1)*flameRow)
	part, most := Other, int64(0)
	for _, p := range allParts {
		if v := n.byPart[p]; v > most {
			part, most = p, v
		}
	}
	name := n.fn.shortName()
	per := float64(n.count.Nanos) / 1e3 / g.divisor
	fmt.Fprintf(g.out, `<g><title>%s&#10;%s µs per %s, %s, %d samples&#10;%s</title><rect x="%.2f" y="%.1f" width="%.2f" height="%d" fill="%s"/>`,
		html.EscapeString(n.fn.name), number(per), g.report.unit(), percent(float64(n.count.Nanos), float64(g.total)), n.count.Samples,
		html.EscapeString(string(part)), x, y, width, flameRow-1, flameColours[part])
	fmt.Fprintf(g.out, "<text x=\"%.2f\" y=\"%.1f\" data-n=\"%s\">%s</text></g>\n", x+3, y+12, html.EscapeString(name), html.EscapeString(fit(name, width)))

	children := make([]*flameNode, 0, len(n.children))
	for _, c := range n.children {
		children = append(children, c)
	}
	slices.SortFunc(children, func(a, b *flameNode) int {
		return cmp.Or(cmp.Compare(b.count.Nanos, a.count.Nanos), cmp.Compare(a.fn.name, b.fn.name))
	})
	for _, c := range children {
		w := width * float64(c.count.Nanos) / float64(n.count.Nanos)
		g.node(c, x, w, level+1)
		x += w
	}
}

// fit returns as much of a name as a box of the given width has room for.
func fit(name string, width float64) string {
	room := int((width - 5) / flameChar)
	if room < 3 {
		return ""
	}
	if chars := []rune(name); len(chars) > room {
		return string(chars[:room-1]) + "…"
	}
	return name
}

// flameScript magnifies a box to the full width, with its callees above it and its
// callers below it. A click on the lowest box shows everything again.
var flameScript = strings.NewReplacer(
	"%width%", itoa(flameWidth-2*flameMargin), "%margin%", itoa(flameMargin), "%char%", fmt.Sprint(flameChar),
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
