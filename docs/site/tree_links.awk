# Mends the links of the tree beside the text: Doxygen lists a function of a namespace below its header, too, with a link
# into the header's page, while its text stands in the page of the namespace. Input: the site's pages, then its scripts,
# which are written anew with the ending .mended. POSIX awk.

FNR == 1 {
  name = FILENAME
  sub(/^.*\//, "", name)
}
FILENAME ~ /\.html$/ {
  while (match($0, / id="[a-z0-9]+"/)) {
    id = substr($0, RSTART + 5, RLENGTH - 6)
    has[name "#" id] = 1
    page_of[id] = name
    $0 = substr($0, RSTART + RLENGTH)
  }
  next
}
match($0, /"[A-Za-z0-9_]+\.html#a[a-z0-9]+"/) {
  link = substr($0, RSTART + 1, RLENGTH - 2)
  id = substr(link, index(link, "#") + 1)
  if (!(link in has)) {
    link = id in page_of ? page_of[id] "#" id : substr(link, 1, index(link, "#") - 1)
    $0 = substr($0, 1, RSTART) link substr($0, RSTART + RLENGTH - 1)
  }
}
{ print > (FILENAME ".mended") }
