# Writes the repository's Markdown as pages that Doxygen reads. Arguments are the documents, as paths from the root of
# the repository. Variables: `out`, the folder for pages; `linked`, a file that receives the path of each file that a
# page links to or shows and that is no document. POSIX awk in the C locale.
#
# - The title of a page and each heading get an anchor: the name of the page, which its path gives, "_" and the anchor
#   that forges give the heading. Doxygen's anchors must differ over all pages.
# - Links become tags, since Doxygen takes neither code nor a line break in the text of a link. Those to headings are
#   checked here, those to public headers by Doxygen. `build` makes pages of other files and folders, below files/.
# - Doxygen ends a code span at a single quote, sees none between straight quotes, and takes no word behind the language
#   of a fenced block.

BEGIN {
  for (i = 1; i < ARGC; i++) {
    if (ARGV[i] !~ /=/) {
      name_of[ARGV[i]] = page_name(ARGV[i])
    }
  }
}

FNR == 1 {
  if (NR > 1) {
    write_page()
  }
  document = FILENAME
  count = 0
}
{ lines[++count] = $0 }
END {
  write_page()
  status = 0
  for (anchor in wanted) {
    if (!(anchor in made)) {
      print wanted[anchor] ": no such heading" > "/dev/stderr"
      status = 1
    }
  }
  exit status
}

# Returns the path from the root of a target that is relative to the document.
function resolved(target,   path, parts, n, kept, depth, i) {
  path = document
  sub(/[^\/]*$/, "", path)
  n = split(path target, parts, "/")
  depth = 0
  for (i = 1; i <= n; i++) {
    if (parts[i] == "..") {
      depth--
    } else if (parts[i] != "" && parts[i] != ".") {
      kept[++depth] = parts[i]
    }
  }
  path = ""
  for (i = 1; i <= depth; i++) {
    path = path (i > 1 ? "/" : "") kept[i]
  }
  return path
}

# Returns the anchor of a heading as the forges make it.
function anchor_of(heading) {
  gsub(/[^A-Za-z0-9_ -]/, "", heading)
  gsub(/ /, "-", heading)
  return tolower(heading)
}

function file_page(path) {
  print path > linked
  return "files/" path (path ~ /\.(svg|png)$/ ? "" : ".html")
}

# Returns the address in the site of the target of a link; "@ref name" of a public header, whose page Doxygen names.
function address_of(link,   path, anchor) {
  if (link ~ /^[a-z]+:/) {
    return link
  }
  anchor = ""
  if (match(link, /#/)) {
    anchor = substr(link, RSTART + 1)
    link = substr(link, 1, RSTART - 1)
  }
  path = link == "" ? document : resolved(link)
  if (path in name_of) {
    if (anchor == "") {
      return name_of[path] ".html"
    }
    wanted[name_of[path] "_" anchor] = document ": " link "#" anchor
    return name_of[path] ".html#" name_of[path] "_" anchor
  }
  if (path ~ /^include\/gradwire\/[a-z_]+\.hp*$/) {
    sub(/^include\//, "", path)
    return "@ref " path
  }
  return file_page(path)
}

# Returns a code span, whose delimiters are `ticks`; as tags where Doxygen would show the backslash of "\|" in a table, or
# make a link of "file:".
function code_span(ticks, text) {
  if (text ~ /\\\||(file|ftp|https?):/) {
    gsub(/[@#<>&%"]/, "\\\\&", text)
    gsub(/(file|ftp|https?):/, "%&", text)
    return "<code>" text "</code>"
  }
  if (text ~ /'/ && ticks == "`") {
    return "``" text "``"
  }
  return ticks text ticks
}

# Doxygen looks for no code between straight quotes, and makes a link of "file:".
function quoted(text) {
  gsub(/[ =]file:/, "&%", text)
  gsub(/file:%/, "%file:", text)
  gsub(/"/, "\\&quot;", text)
  return text
}

# Returns the lines of a paragraph, a list or a table with its links rewritten.
function inline(text,   done, token, rest, at, name, target, label) {
  done = ""
  while (match(text, /`+|!\[[^]]*\]\([^) \n]*\)|\]\([^) \n]*\)|\[[^][\n]+\]/)) {
    token = substr(text, RSTART, RLENGTH)
    rest = substr(text, RSTART + RLENGTH)
    done = done quoted(substr(text, 1, RSTART - 1))
    if (token ~ /^`/) {
      at = index(rest, token)
      if (at > 0) {
        done = done code_span(token, substr(rest, 1, at - 1))
        rest = substr(rest, at + length(token))
      } else {
        done = done token
      }
    } else if (token ~ /^!/) {
      at = index(token, "](")
      name = substr(token, 3, at - 3)
      target = file_page(resolved(substr(token, at + 2, length(token) - at - 2)))
      done = done "<img src=\"" target "\" alt=\"" name "\"/>"
    } else if (token ~ /^\]/) {
      name = substr(token, 3, length(token) - 3)
      target = address_of(name)
      at = last_bracket(done)
      label = substr(done, at + 1)
      done = substr(done, 1, at - 1)
      if (target ~ /^@/) {
        gsub(/`/, "", label)
        done = done "[" label "](" target ")"
      } else {
        done = done "<a href=\"" target "\">" label "</a>"
      }
    } else {
      name = substr(token, 2, length(token) - 2)
      if (name in defined && rest !~ /^[(:]/) {
        rest = "](" defined[name] ")" rest
        done = done "[" name
      } else {
        done = done "["
        rest = substr(token, 2) rest
      }
    }
    text = rest
  }
  return done quoted(text)
}

# Returns where the bracket stands that the end of a link closes.
function last_bracket(text,   i, depth) {
  depth = 0
  for (i = length(text); i > 0; i--) {
    if (substr(text, i, 1) == "]") {
      depth++
    } else if (substr(text, i, 1) == "[" && depth-- == 0) {
      return i
    }
  }
  return 0
}

# Takes definitions such as "[D1]: target" out of the document. Returns by how much its headings lie deeper than two
# levels, which Doxygen wants to be used first.
function take_definitions(   i, fence, deeper) {
  split("", defined)
  deeper = 9
  fence = 0
  for (i = 1; i <= count; i++) {
    fence = lines[i] ~ /^```/ ? !fence : fence
    if (!fence && lines[i] ~ /^\[[^]]+\]: +[^ ]+ *$/) {
      match(lines[i], /\]: +/)
      defined[substr(lines[i], 2, RSTART - 2)] = substr(lines[i], RSTART + RLENGTH)
      lines[i] = ""
    } else if (!fence && i > 1 && match(lines[i], /^#+ /) && RLENGTH - 3 < deeper) {
      deeper = RLENGTH - 3
    }
  }
  return deeper
}

function write_page(   deeper, file, i, line, block, fence, hashes, heading, anchor, name, seen) {
  name = name_of[document]
  file = out "/" name ".md"
  deeper = take_definitions()
  if (lines[1] !~ /^# /) {
    heading = document
    sub(/^.*\//, "", heading)
    sub(/\.md$/, "", heading)
    print "# " heading " {#" name "}\n" > file
  }
  block = ""
  fence = 0
  for (i = 1; i <= count; i++) {
    line = lines[i]
    if (line ~ /^```/) {
      printf "%s", inline(block) > file
      block = ""
      fence = !fence
      sub(/ .*/, "", line)
      print line > file
    } else if (fence) {
      print line > file
    } else if (line ~ /^#+ /) {
      printf "%s", inline(block) > file
      block = ""
      match(line, /^#+ /)
      hashes = substr(line, 1, i == 1 ? 1 : RLENGTH - 1 - deeper) " "
      heading = substr(line, RLENGTH + 1)
      if (i == 1) {
        gsub(/`/, "", heading)
        if (match(heading, /^[0-9]+\. /)) { # "7. Title" would be a list
          heading = substr(heading, 1, RLENGTH - 1) "&nbsp;" substr(heading, RLENGTH + 1)
        }
        print hashes heading (name == "index" ? "" : " {#" name "}") > file
        continue
      }
      anchor = name "_" anchor_of(heading)
      gsub(/`/, "", heading) # Doxygen shows tags of code
      if (seen[anchor]++) {
        anchor = anchor "-" (seen[anchor] - 1)
      }
      made[anchor] = 1
      if (name == "index") { # not in the tree beside the text, which has shelves there
        print "@anchor " anchor "\n<h1>" inline(heading) "</h1>\n" > file
      } else {
        print hashes inline(heading) " {#" anchor "}" > file
      }
    } else if (block == "" && line ~ /^    /) { # code that is indented; Doxygen misreads a list that follows it
      print "```" > file
      while (i <= count && (lines[i] ~ /^    / || (lines[i] == "" && lines[i + 1] ~ /^    /))) {
        print substr(lines[i++], 5) > file
      }
      print "```" > file
      i--
    } else if (line == "") {
      printf "%s\n", inline(block) > file
      block = ""
    } else {
      block = block line "\n"
    }
  }
  printf "%s", inline(block) > file
  close(file)
}
