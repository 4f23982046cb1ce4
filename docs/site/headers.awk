# Prints a public header with its comments as Doxygen knows them: what stands behind a member or an enumerator, the text
# at the top of the file, and in C every comment. Lines keep their numbers, but for a few at the top. POSIX awk.

BEGIN {
  top = 1     # C++: only the comment at the top was read
  column = 0  # C++: where the comment behind the previous line begins; 0: it has none
  told = 0    # C++: whether the previous line is a comment for Doxygen
  held = ""   # C: a comment that stands by itself, until the next line is known
  added = 0   # lines that were added and not yet made up for by an empty line
}

# Documents that comments name become links.
/\/\/|^ *\/\*|^ \*/ && match($0, /docs\/[a-z\/-]+\.md/) {
  path = substr($0, RSTART, RLENGTH)
  page = substr(path, 6, length(path) - 8)
  gsub(/\//, "-", page)
  $0 = substr($0, 1, RSTART - 1) "@ref " page " \"" path "\"" substr($0, RSTART + RLENGTH)
}

# C: a comment above a declaration, or behind one. One with an empty line below it concerns the whole file.
FILENAME ~ /\.h$/ {
  if (held ~ /\*\/\n$/) {
    if (FNR > 2 && $0 != "" && $0 !~ /^#/) {
      sub(/\/\*/, "/**", held)
    } else {
      sub(/\/\*/, "/** @file\n *", held)
      added++
    }
    printf "%s", held
    held = ""
  }
  if (held != "" || ($0 ~ /^\/\*/ && $0 !~ /NOLINT/)) {
    held = held $0 "\n"
  } else if ($0 == "" && added > 0) {
    added--
  } else {
    if ($0 !~ /NOLINT|^#endif/) {
      sub(/\/\*/, $0 ~ /^ *\/\*/ ? "/**" : "/**<")
    }
    print
  }
  next
}

# C++: the comment at the top of the file.
top && /^\/\// {
  if (FNR == 1) {
    print "/// @file"
    added++
  }
  sub(/^\/\//, "///")
  print
  next
}
{ top = 0 }
/^$/ && added > 0 {
  added--
  next
}

# C++: friends are no members, and Doxygen would link to places that it does not make.
/^ *friend .*;/ { $0 = "" }

# C++: a class without a comment; the top of the file says what it is.
/^class [A-Z].* [{]$/ && !told { $0 = "/** The header's page says what it is: @ref " header() ". */ " $0 }
{ told = $0 ~ /^ *\/\/\/|^template/ }

# C++: a comment behind a member, and its further lines in the same column.
/[^ ] +\/\/ / && !/^( *\/\/|#|})/ && !/NOLINT|"[^"]*\/\/|\) [{]|return |^ *(if|for) / {
  match($0, / \/\/ /)
  column = RSTART + 1
  sub(/ \/\/ /, " ///< ")
  print
  next
}
column > 0 && match($0, /^ *\/\/ /) && RLENGTH - 2 == column {
  sub(/\/\/ /, "///< ")
  print
  next
}
{
  column = 0
  print
}

# Returns "gradwire/session.hpp" for the file that is read.
function header(   path) {
  path = FILENAME
  sub(/^.*include\//, "", path)
  return path
}
