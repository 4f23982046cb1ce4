# Prints a file as a page: its text, or of a folder (variable `folder`) links to its files. Variable: `path`.

function escaped(text) {
  gsub(/&/, "\\&amp;", text)
  gsub(/</, "\\&lt;", text)
  gsub(/>/, "\\&gt;", text)
  gsub(/"/, "\\&quot;", text)
  return text
}

BEGIN {
  root = path
  gsub(/[^\/]+/, "..", root)
  print "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
  print "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>" path "</title>"
  print "<style>body{margin:1em;font-family:sans-serif}p,li{overflow-wrap:anywhere}pre{overflow-x:auto;font-size:13px}</style></head><body>"
  print "<p><a href=\"" root "/index.html\">gradwire</a> : " path "</p>"
  print folder ? "<ul>" : "<pre>"
}
folder {
  if (NR > 1) {
    name = path
    sub(/^.*\//, "", name)
    print "<li><a href=\"" name "/" $0 ($0 ~ /\.(svg|png)$/ ? "" : ".html") "\">" $0 "</a></li>"
  }
  next
}
{ print escaped($0) }
END { print (folder ? "</ul>" : "</pre>") "</body></html>" }
