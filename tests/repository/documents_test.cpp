// Links between documents lead somewhere, documents that code points to exist, and the policies that documents show
// parse.
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
#include "repository/layering.hpp"

namespace gradwire::repository {
namespace {

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

std::vector<std::filesystem::path> documents() {
  return files_below({"docs", "bench", "cmake", "plugins", "python-free-examples", "tests"}, {".md"});
}

struct Block {
  std::string info;  // what follows the opening fence
  std::string text;
};

/// Splits a document into what is fenced and the rest; code is no place for links and headings.
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

/// Anchors of a document's headings as the forges make them: lower case, blanks to dashes, punctuation dropped.
std::set<std::string> anchors(const std::filesystem::path& document) {
  std::set<std::string> names;
  std::istringstream lines(split_fences(read_file(document)).second);
  std::string line;
  while (std::getline(lines, line)) {
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

/// What is wrong with the links of a text that stands in `document`; outside links are not followed.
std::vector<std::string> broken_links(const std::filesystem::path& document, const std::string& text) {
  static const std::regex kLink(R"(\]\(([^)\s]+)\))");
  std::vector<std::string> broken;
  const std::string prose = split_fences(text).second;
  for (std::sregex_iterator it(prose.begin(), prose.end(), kLink), end; it != end; ++it) {
    const std::string link = (*it)[1];
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

TEST(Documents, PoliciesTheyShowParse) {
  for (const char* document : {"README.md", "docs/policy.md"}) {
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

}  // namespace
}  // namespace gradwire::repository
