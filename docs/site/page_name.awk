# The name of a document's page, for pages.awk and layout.awk. POSIX awk.

# "docs/how-to/library.md" is "how-to-library".
function page_name(path,   name) {
  if (path == "README.md") {
    return "index"
  }
  if (path == "docs/README.md") {
    return "documents"
  }
  name = path
  sub(/^docs\//, "", name)
  sub(/\/README\.md$/, "", name)
  sub(/\.md$/, "", name)
  gsub(/\//, "-", name)
  return tolower(name)
}
