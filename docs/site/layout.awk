# Prints Doxygen's layout file with the navigation of the site. Input: docs/README.md, of which each "## Shelf" becomes a
# group, and each link below it to a document an entry. Variables: `decisions`, `results`: files with the documents of
# these shelves, one a line.

function escaped(text) {
  gsub(/`/, "", text)
  gsub(/&/, "\\&amp;", text)
  gsub(/</, "\\&lt;", text)
  gsub(/"/, "\\&quot;", text)
  return text
}

function entry(name, title) {
  if (!(name in shown)) {
    print "      <tab type=\"user\" url=\"@ref " name "\" title=\"" escaped(title) "\"/>"
    shown[name] = 1
  }
}

function begin_group(title) {
  end_group()
  print "    <tab type=\"usergroup\" title=\"" escaped(title) "\">"
  open = 1
}

function end_group() {
  if (open) {
    print "    </tab>"
  }
  open = 0
}

# Returns what a document's first line says, or its name.
function title_of(path,   line) {
  getline line < path
  close(path)
  if (line !~ /^# /) {
    line = path
    sub(/^.*\//, "", line)
    sub(/\.md$/, "", line)
  }
  sub(/^# (Decisions: )?/, "", line)
  return line
}

function shelf(title, first, list,   path) {
  begin_group(title)
  entry(first, "All " tolower(title))
  while ((getline path < list) > 0) {
    entry(page_name(path), title_of(path))
  }
}

BEGIN {
  open = 0
  print "<doxygenlayout version=\"1.0\">\n  <navindex>"
  print "    <tab type=\"mainpage\" visible=\"yes\" title=\"gradwire\"/>"
  print "    <tab type=\"user\" url=\"@ref documents\" title=\"All documents\"/>"
  shown["index"] = shown["documents"] = shown["decisions"] = shown["results"] = 1
}

/^## / {
  begin_group(substr($0, 4))
  next
}
open {
  while (match($0, /\[[^]]+\]\([^)]*\.md\)/)) {
    link = substr($0, RSTART, RLENGTH)
    $0 = substr($0, RSTART + RLENGTH)
    at = index(link, "](")
    target = substr(link, at + 2, length(link) - at - 2)
    sub(/^\.\.\//, "", target)
    if (target == "README.md") {
      continue
    }
    entry(page_name(target), substr(link, 2, at - 2))
  }
}

END {
  delete shown["decisions"]
  delete shown["results"]
  shelf("Decisions", "decisions", decisions)
  shelf("Results", "results", results)
  end_group()
  print "    <tab type=\"usergroup\" title=\"Classes and headers\">"
  print "      <tab type=\"classes\" visible=\"yes\" title=\"Classes\"><tab type=\"classlist\"/><tab type=\"classindex\"/>" \
    "<tab type=\"hierarchy\"/><tab type=\"classmembers\"/></tab>"
  print "      <tab type=\"namespaces\" visible=\"yes\" title=\"Namespaces\"><tab type=\"namespacelist\"/>" \
    "<tab type=\"namespacemembers\"/></tab>"
  print "      <tab type=\"files\" visible=\"yes\" title=\"Headers\"><tab type=\"filelist\"/><tab type=\"globals\"/></tab>"
  print "    </tab>\n  </navindex>\n</doxygenlayout>"
}
