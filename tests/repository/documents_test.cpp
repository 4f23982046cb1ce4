// Tests that links between documents lead somewhere, that their lines are short enough to read beside code, that
// documents named in code exist, and that the policies in documents parse.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gradwire/policy.hpp"
#include "gradwire/version.hpp"
#include "repository/layering.hpp"

namespace gradwire::repository {
namespace {

constexpr std::size_t kColumns = 140;  // limit for any line of a document, including tables and code
constexpr std::size_t kReadmeLines = 120;
constexpr std::size_t kTutorialLines = 80;  // of a chapter
constexpr std::size_t kPageLines = 250;

std::vector<std::filesystem::path> files_below(const std::vector<std::string>& roots,
                                               const std::set<std::string>& extensions) {
  std::vector<std::filesystem::path> files;
  const auto add = [&](const std::filesystem::directory_entry& entry) {
    if (entry.is_regular_file() && extensions.contains(entry.path().extension().string())) {
      files.push_back(entry.path());
    }
  };
  for (const auto& entry : std::filesystem::directory_iterator(kRepository)) {
    add(entry);
  }
  for (const std::string& root : roots) {
    if (std::filesystem::exists(kRepository / root)) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(kRepository / root)) {
        add(entry);
      }
    }
  }
  return files;
}

/// Returns every document of the tree, except those below folders that git ignores.
std::vector<std::filesystem::path> documents() {
  static const std::set<std::string> kLocal = {".git", ".cache", "build", "results"};
  std::vector<std::filesystem::path> files;
  for (auto it = std::filesystem::recursive_directory_iterator(kRepository);
       it != std::filesystem::recursive_directory_iterator(); ++it) {
    if (it.depth() == 0 && it->is_directory() && kLocal.contains(it->path().filename().string())) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file() && it->path().extension() == ".md") {
      files.push_back(it->path());
    }
  }
  return files;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

/// Returns the number of UTF-8 characters.
std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

/// Returns "file:line: 150 columns" for each line of a text in `document` that is too long.
std::vector<std::string> long_lines(const std::filesystem::path& document, const std::string& text) {
  std::vector<std::string> found;
  const std::vector<std::string> lines = lines_of(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (columns(lines[i]) > kColumns) {
      found.push_back(document.lexically_relative(kRepository).string() + ":" + std::to_string(i + 1) + ": " +
                      std::to_string(columns(lines[i])) + " columns, at most " + std::to_string(kColumns));
    }
  }
  return found;
}

struct Block {
  std::string info;  // text after the opening fence
  std::string text;
};

/// Splits a document into fenced blocks and the rest, since links and headings in code do not count.
std::pair<std::vector<Block>, std::string> split_fences(const std::string& text) {
  std::vector<Block> blocks;
  std::string prose;
  std::istringstream lines(text);
  std::string line;
  bool inside = false;
  while (std::getline(lines, line)) {
    const bool fence = line.starts_with("```");
    if (fence && !inside) {
      blocks.push_back({line.substr(3), ""});
    } else if (inside && !fence) {
      blocks.back().text += line + "\n";
    } else if (!fence) {
      prose += line + "\n";
    }
    inside = fence != inside;
  }
  return {blocks, prose};
}

/// Returns the anchors of a document's headings as the forges make them: lower case, blanks to dashes, punctuation
/// dropped.
std::set<std::string> anchors(const std::filesystem::path& document) {
  std::set<std::string> names;
  for (const std::string& line : lines_of(split_fences(read_file(document)).second)) {
    const std::size_t begin = line.find_first_not_of('#');
    if (begin == 0 || begin == std::string::npos || line[begin] != ' ') {
      continue;
    }
    std::string anchor;
    for (const char c : line.substr(begin + 1)) {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_') {
        anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      } else if (c == ' ') {
        anchor += '-';
      }
    }
    names.insert(anchor);
  }
  return names;
}

/// The targets of the links in a text: [text](target), and [name] with a line "[name]: target".
struct Links {
  std::vector<std::string> targets;
  std::vector<std::string> undefined;  // decisions named like [D1] without such a line
};

Links links_of(const std::string& text) {
  static const std::regex kInline(R"(\]\(([^)\s]+)\))");
  static const std::regex kDefinition(R"(\[([^\]]+)\]: +(\S+) *)");
  static const std::regex kDecision(R"(\[(D[0-9]+)\](?![(:]))");
  Links links;
  std::set<std::string> defined;
  std::string prose;
  for (const std::string& line : lines_of(split_fences(text).second)) {
    std::smatch match;
    if (std::regex_match(line, match, kDefinition)) {
      defined.insert(match[1]);
      links.targets.push_back(match[2]);
    } else {
      prose += line + "\n";
    }
  }
  for (std::sregex_iterator it(prose.begin(), prose.end(), kInline), end; it != end; ++it) {
    links.targets.push_back((*it)[1]);
  }
  for (std::sregex_iterator it(prose.begin(), prose.end(), kDecision), end; it != end; ++it) {
    if (!defined.contains((*it)[1])) {
      links.undefined.push_back((*it)[1]);
    }
  }
  return links;
}

/// Returns the broken links in the text of `document`; external links are not checked.
std::vector<std::string> broken_links(const std::filesystem::path& document, const std::string& text) {
  std::vector<std::string> broken;
  const Links links = links_of(text);
  for (const std::string& name : links.undefined) {
    broken.push_back(document.lexically_relative(kRepository).string() + ": [" + name + "] leads nowhere");
  }
  for (const std::string& link : links.targets) {
    if (link.find("://") != std::string::npos || link.starts_with("mailto:")) {
      continue;
    }
    const std::string path = link.substr(0, link.find('#'));
    const std::filesystem::path target = path.empty() ? document : document.parent_path() / path;
    const std::string where = document.lexically_relative(kRepository).string() + ": " + link;
    if (!std::filesystem::exists(target)) {
      broken.push_back(where + ": no such file");
    } else if (link.find('#') != std::string::npos && !anchors(target).contains(link.substr(link.find('#') + 1))) {
      broken.push_back(where + ": no such heading");
    }
  }
  return broken;
}

TEST(Documents, LinksResolve) {
  ASSERT_GE(documents().size(), 4U);
  for (const auto& document : documents()) {
    for (const std::string& problem : broken_links(document, read_file(document))) {
      ADD_FAILURE() << problem;
    }
  }
}

TEST(Documents, BrokenLinksAreFound) {
  const auto document = kRepository / "README.md";
  EXPECT_EQ(broken_links(document, "see [a](docs/none.md)").size(), 1U);
  EXPECT_EQ(broken_links(document, "see [a](ARCHITECTURE.md#no-such-heading-at-all)").size(), 1U);
  EXPECT_TRUE(
      broken_links(document, "see [a](ARCHITECTURE.md), [b](https://example.org/x)\n```\n[c](none)\n```\n").empty());
  EXPECT_EQ(broken_links(document, "see [a]\n\n[a]: docs/README.md#none\n").size(), 1U);
  EXPECT_EQ(broken_links(document, "see [D67]\n").size(), 1U);
  EXPECT_TRUE(broken_links(document, "see [D67]\n\n[D67]: docs/README.md\n").empty());
}

TEST(Documents, LinesAreNoLongerThanAllowed) {
  for (const auto& document : documents()) {
    for (const std::string& problem : long_lines(document, read_file(document))) {
      ADD_FAILURE() << problem;
    }
  }
}

TEST(Documents, LongLinesAreFound) {
  const auto document = kRepository / "README.md";
  const std::string x(kColumns - 2, 'x');
  EXPECT_TRUE(long_lines(document, x + "ää\n" + x + "xx").empty()) << "characters count, not bytes";
  EXPECT_EQ(long_lines(document, "short\n| " + x + " |\n```\n" + x + "äää\n```\n").size(), 2U);
}

TEST(Documents, TheReadmeIsShort) {
  EXPECT_LE(lines_of(read_file(kRepository / "README.md")).size(), kReadmeLines)
      << "README.md is for the first quarter of an hour; the rest belongs into docs/";
}

// Results, decisions and the changelog only grow, and the page of the tool has all of its commands.
TEST(Documents, NoPageIsLong) {
  for (const auto& document : documents()) {
    const std::string name = document.lexically_relative(kRepository).string();
    if (!name.starts_with("docs/results") && !name.starts_with("docs/decisions") && name != "CHANGELOG.md" &&
        name != "docs/reference/tool.md") {
      EXPECT_LE(lines_of(read_file(document)).size(), kPageLines)
          << name << " is long; split it by what readers look for";
    }
  }
}

TEST(Documents, ChaptersOfTheTutorialAreShortAndLeadToTheNext) {
  std::vector<std::filesystem::path> chapters;
  for (const auto& entry : std::filesystem::directory_iterator(kRepository / "docs/tutorial")) {
    chapters.push_back(entry.path());
  }
  std::sort(chapters.begin(), chapters.end());
  ASSERT_EQ(chapters.size(), 14U);
  for (std::size_t i = 0; i < chapters.size(); ++i) {
    const std::string text = read_file(chapters[i]);
    const std::string number = std::to_string(i + 1);
    EXPECT_TRUE(text.starts_with("# " + number + ". ")) << chapters[i];
    EXPECT_LE(lines_of(text).size(), kTutorialLines) << chapters[i];
    if (i + 1 < chapters.size()) {
      EXPECT_NE(text.find("](" + chapters[i + 1].filename().string() + ")\n"), std::string::npos) << chapters[i];
    }
  }
}

TEST(Documents, ThoseThatCodeNamesExist) {
  static const std::regex kMention(R"((docs/[A-Za-z0-9_/-]+\.md|[A-Z]+\.md))");
  for (const auto& file :
       files_below({"include", "src", "kernels", "plugins", "bench", "python-free-examples", "cmake"},
                   {".hpp", ".cpp", ".cu", ".cuh", ".txt", ".cmake", ""})) {
    const std::string text = read_file(file);
    for (std::sregex_iterator it(text.begin(), text.end(), kMention), end; it != end; ++it) {
      EXPECT_TRUE(std::filesystem::exists(kRepository / (*it)[1].str()))
          << file.lexically_relative(kRepository).string() << " names " << (*it)[1] << ", which does not exist";
    }
  }
}

/// Returns the sections that a text cites as (DOCUMENT.md, "Section") and that do not exist.
std::vector<std::string> missing_sections(const std::string& text) {
  static const std::regex kCitation(R"re(((?:docs/)?[A-Za-z0-9_/-]+\.md), "([^"]+)")re");
  std::vector<std::string> missing;
  for (std::sregex_iterator it(text.begin(), text.end(), kCitation), end; it != end; ++it) {
    const std::string document = (*it)[1];
    const std::vector<std::string> lines =
        lines_of(std::filesystem::exists(kRepository / document) ? read_file(kRepository / document) : "");
    const std::string heading = " " + (*it)[2].str();
    if (std::none_of(lines.begin(), lines.end(), [&](const std::string& line) {
          return line.starts_with('#') && line.substr(std::min(line.find_first_not_of('#'), line.size())) == heading;
        })) {
      missing.push_back(document + " has no section \"" + (*it)[2].str() + "\"");
    }
  }
  return missing;
}

TEST(Documents, SectionsThatCodeCitesExist) {
  int citations = 0;
  for (const auto& file : files_below({"include", "src", "kernels", "plugins", "bench", "cmake", "tests"},
                                      {".hpp", ".h", ".cpp", ".cu", ".cuh", ".txt", ".cmake"})) {
    if (file.filename() == "documents_test.cpp") {
      continue;
    }
    const std::string text = read_file(file);
    if (text.find(".md, \"") == std::string::npos) {
      continue;  // this check takes a thousandth of the expression's time
    }
    ++citations;
    for (const std::string& problem : missing_sections(text)) {
      ADD_FAILURE() << file.lexically_relative(kRepository).string() << ": " << problem;
    }
  }
  EXPECT_GT(citations, 0) << "nothing was looked at";
}

TEST(Documents, ASectionThatIsNotThereIsFound) {
  EXPECT_TRUE(missing_sections("# Modules (ARCHITECTURE.md, \"Map\").").empty());
  EXPECT_EQ(missing_sections("# Modules (ARCHITECTURE.md, \"Layers\").").size(), 1U);
  EXPECT_EQ(missing_sections("(docs/none.md, \"Map\")").size(), 1U);
}

// These places name the release besides gradwire/version.hpp; docs/development.md lists them.
TEST(Documents, NameTheVersionOfTheLibrary) {
  const std::string version(kVersion);
  const std::string minor = version.substr(0, version.rfind('.'));
  EXPECT_EQ(version,
            std::to_string(kVersionMajor) + "." + std::to_string(kVersionMinor) + "." + std::to_string(kVersionPatch));
  EXPECT_NE(read_file(kRepository / "CMakeLists.txt").find("project(gradwire VERSION " + version + " "),
            std::string::npos);
  EXPECT_NE(read_file(kRepository / "CITATION.cff").find("\nversion: " + version + "\n"), std::string::npos);
  const std::string changelog = read_file(kRepository / "CHANGELOG.md");
  const std::size_t first = changelog.find("\n## ") + 1;
  const std::string heading = changelog.substr(first, changelog.find('\n', first) - first);
  EXPECT_TRUE(heading == "## Unreleased" || heading == "## " + version) << heading;
  for (const char* file : {"python-free-examples/CMakeLists.txt", "tests/repository/consumer/CMakeLists.txt",
                           "docs/how-to/library.md", "README.md"}) {
    EXPECT_NE(read_file(kRepository / file).find("find_package(gradwire " + minor), std::string::npos) << file;
  }
}

TEST(Documents, PoliciesTheyShowParse) {
  for (const char* document :
       {"docs/how-to/choose-a-codec.md", "docs/how-to/drop-in-nccl.md", "docs/how-to/library.md",
        "docs/how-to/policy-for-calls.md", "docs/reference/policy.md", "docs/tutorial/07-policy.md"}) {
    int policies = 0;
    for (const Block& block : split_fences(read_file(kRepository / document)).first) {
      if (block.info.starts_with("toml")) {
        EXPECT_NO_THROW((void)Policy::parse(block.text, document)) << block.text;
        ++policies;
      }
    }
    EXPECT_GT(policies, 0) << document << " shows no policy file";
  }
}

// Returns the members of Policy that have another name in a policy file.
TEST(Documents, PolicyKeysGoByTheNamesThatFilesHave) {
  for (const auto& document : documents()) {
    const std::string name = document.lexically_relative(kRepository).string();
    if (name == "CHANGELOG.md" || name.starts_with("docs/decisions")) {
      continue;
    }
    for (const char* member : {"chunk_bytes", "bucket_bytes", "auto_options"}) {
      EXPECT_EQ(read_file(document).find(std::string("`") + member + "`"), std::string::npos)
          << name << " names " << member << ", which no policy file has";
    }
  }
}

}  // namespace
}  // namespace gradwire::repository
