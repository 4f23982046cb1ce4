// Builds the site (docs/site/build), walks its links, and looks at all its pages in a headless Chromium at 1280 and 400
// pixels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/systems/browser/chromium.hpp"

namespace gradwire::test {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

const fs::path kSource = GRADWIRE_SOURCE_DIR;
const bool kHasDoxygen = std::string_view(GRADWIRE_DOXYGEN).size() > 1;

std::vector<fs::path> files_of(const fs::path& folder, const std::string& extension) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == extension) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Returns the values of an attribute, such as href="value".
std::vector<std::string> values_of(const std::string& html, const std::string& attribute) {
  std::vector<std::string> values;
  const std::string begin = " " + attribute + "=\"";
  for (std::size_t at = html.find(begin); at != std::string::npos; at = html.find(begin, at)) {
    at += begin.size();
    const std::size_t end = std::min(html.find('"', at), html.size());
    values.push_back(html.substr(at, end - at));
    at = end;
  }
  return values;
}

/// Returns the strings of a script that name pages: the tree beside the text, the menu and the index of the search.
std::vector<std::string> pages_in_script(const std::string& script) {
  std::vector<std::string> pages;
  for (std::size_t at = script.find(".html"); at != std::string::npos; at = script.find(".html", at + 1)) {
    const std::size_t begin = script.find_last_of("\"'", at);
    const std::size_t end = script.find_first_of("\"'", at);
    if (begin != std::string::npos && end != std::string::npos && begin + 1 < at) {
      pages.push_back(script.substr(begin + 1, end - begin - 1));
    }
  }
  return pages;
}

/// Walks the links of a site.
class Walk {
 public:
  explicit Walk(fs::path site) : site_(std::move(site)) {
    for (const fs::path& page : files_of(site_, ".html")) {
      const std::string html = read_text(page);
      for (const char* attribute : {"href", "src"}) {
        follow(page, values_of(html, attribute));
      }
    }
    for (const fs::path& script : files_of(site_, ".js")) {
      static const std::set<std::string> kPrograms = {"jquery.js", "menu.js",      "navtree.js", "dynsections.js",
                                                      "resize.js", "clipboard.js", "search.js",  "cookie.js"};
      if (!kPrograms.contains(script.filename().string())) {
        follow(script, pages_in_script(read_text(script)));
      }
    }
  }

  std::vector<std::string> broken;
  std::size_t links = 0;

 private:
  void follow(const fs::path& from, const std::vector<std::string>& targets) {
    for (const std::string& target : targets) {
      if (target.empty() || target.find("://") != std::string::npos || target.starts_with("mailto:") ||
          target.starts_with("javascript:")) {
        continue;
      }
      ++links;
      const std::size_t hash = std::min(target.find('#'), target.size());
      const fs::path page = hash == 0 ? from : (from.parent_path() / target.substr(0, hash)).lexically_normal();
      const std::string where = from.lexically_relative(site_).string() + ": " + target;
      if (page.lexically_relative(site_).string().starts_with("..")) {
        broken.push_back(where + " leads out of the site");
      } else if (!fs::is_regular_file(page)) {
        broken.push_back(where + ": no such file");
      } else if (hash + 1 < target.size() && !anchors_of(page).contains(target.substr(hash + 1))) {
        broken.push_back(where + ": no such anchor");
      }
    }
  }

  const std::set<std::string>& anchors_of(const fs::path& page) {
    const auto [at, fresh] = anchors_.try_emplace(page);
    if (fresh) {
      const std::string html = read_text(page);
      for (const char* attribute : {"id", "name"}) {
        for (const std::string& name : values_of(html, attribute)) {
          at->second.insert(name);
        }
      }
    }
    return at->second;
  }

  fs::path site_;
  std::map<fs::path, std::set<std::string>> anchors_;
};

class Site : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (kHasDoxygen) {
      folder_ = std::make_unique<ScratchFolder>();
      built_ = run_program("'" + (kSource / "docs/site/build").string() + "' '" + site().string() + "' 2>&1");
    }
  }
  static void TearDownTestSuite() { folder_.reset(); }
  void SetUp() override {
    if (!kHasDoxygen) {
      GTEST_SKIP() << "there is no doxygen; Debian: apt-get install doxygen, then configure again";
    }
    ASSERT_EQ(built_.status, 0) << built_.output;
  }
  static fs::path site() { return folder_->path() / "site"; }
  static std::string page(const std::string& name) { return read_text(site() / name); }

  inline static std::unique_ptr<ScratchFolder> folder_;
  inline static Outcome built_;
};

TEST_F(Site, IsBuiltWithoutAWarning) { EXPECT_EQ(built_.output, ""); }

TEST_F(Site, EveryLinkLeadsSomewhere) {
  const Walk walk(site());
  EXPECT_THAT(walk.broken, IsEmpty());
  EXPECT_GT(walk.links, 10'000U) << "the walk saw the site";
}

TEST_F(Site, HasDocumentsPicturesSourcesAndTheReference) {
  EXPECT_THAT(page("index.html"), HasSubstr("<img src=\"files/docs/results/demo.svg\""));
  EXPECT_THAT(page("tutorial-07-policy.html"), HasSubstr("<div class=\"title\">7.&#160;A policy, check, explain"));
  EXPECT_THAT(page("reference-policy.html"),
              HasSubstr("<a href=\"how-to-policy-for-calls.html#how-to-policy-for-calls_a-bound-on-errors"));
  EXPECT_THAT(page("reference-environment.html"), HasSubstr("<code>0 | 1</code>")) << "in a table, without a backslash";
  EXPECT_THAT(page("architecture.html"), HasSubstr("href=\"files/src/codec/registry.cpp.html\""));
  EXPECT_THAT(page("files/src/codec/registry.cpp.html"), HasSubstr("ROW(Bf16, &quot;bf16&quot;, 2, true)"));
  EXPECT_THAT(page("classgradwire_1_1Session.html"), HasSubstr("Registers a gradient; same names"));
  EXPECT_THAT(page("structgradwire_1_1Sync.html"), HasSubstr("steps between two synchronisations"))
      << "what stands behind a member";
  EXPECT_THAT(page("gradwire_8h.html"), HasSubstr("Reads a policy from a TOML file"));
}

TEST_F(Site, TheTreeHasTheShelvesAndTheSearchFindsPagesAndClasses) {
  const std::string tree = page("navtreedata.js");
  std::size_t before = 0;
  for (const char* shelf :
       {"Tutorial", "How to", "Reference", "Explanation", "Decisions", "Results", "Classes and headers"}) {
    const std::size_t at = tree.find("[ \"" + std::string(shelf) + "\"");
    ASSERT_NE(at, std::string::npos) << shelf;
    EXPECT_GT(at, before) << shelf;
    before = at;
  }
  EXPECT_LT(tree.find("tutorial-01-loop.html"), tree.find("tutorial-14-symptoms.html"));
  std::string index;
  for (const fs::path& script : files_of(site() / "search", ".js")) {
    index += read_text(script);
  }
  for (const char* found : {"reference-policy.html", "tutorial-01-loop.html", "classgradwire_1_1Session.html"}) {
    EXPECT_THAT(index, HasSubstr(found));
  }
}

class Browser : public Site {
 protected:
  void SetUp() override {
    Site::SetUp();
    if (kChromium.empty()) {
      GTEST_SKIP() << kNoChromium;
    }
  }

  /// Opens pages one after the other in a frame of that width, since a window of Chromium has at least 500 pixels.
  /// Returns a line for each that is wider, or has something that is and does not scroll by itself; last the number of
  /// pages.
  static std::vector<std::string> measured(const std::vector<std::string>& pages, int width) {
    std::string list;
    for (const std::string& name : pages) {
      list += "'" + name + "',";
    }
    const std::string file = "measure-" + std::to_string(width) + ".html";
    std::ofstream(site() / file) << "<!DOCTYPE html><meta charset=utf-8><body style=margin:0><pre id=m></pre><script>"
                                    "const pages=["
                                 << list << "],width=" << width << R"js(;let at=0,frame;
const out=text=>document.getElementById('m').textContent+=text+'\n';
function scrolls(e,d){for(let p=e.parentElement;p&&p.id!=='doc-content'&&p!==d.body;p=p.parentElement)
  if(d.defaultView.getComputedStyle(p).overflowX!=='visible')return true;return false}
function look(){const d=frame.contentDocument,r=d.documentElement,c=d.getElementById('doc-content');
  const wide=[...d.body.querySelectorAll('*')].filter(e=>{const b=e.getBoundingClientRect();
    return b.width>0&&b.right>width+1&&!scrolls(e,d)}).map(e=>e.tagName+'.'+e.className);
  if(r.clientWidth!==width||r.scrollWidth>width||wide.length||(c&&c.scrollWidth>c.clientWidth+1))
    out('wide: '+pages[at]+' '+r.scrollWidth+' of '+width+' '+wide.slice(0,4));
  if(c&&c.getBoundingClientRect().width<width*.7)out('narrow: '+pages[at]+' '+c.getBoundingClientRect().width);
  const old=frame;at++;next();old.remove()}
function next(){if(at===pages.length){out('pages: '+at);return}
  frame=document.createElement('iframe');frame.style='border:0;height:900px;width:'+width+'px';
  frame.onload=look;frame.src=pages[at];document.body.append(frame)}
next()</script>)js";
    const Outcome dom =
        run_chromium(folder_->file("profile"), "--window-size=1400,1000 --dump-dom " + file_url(site() / file), 400);
    fs::remove(site() / file);
    std::vector<std::string> lines;
    std::istringstream text(dom.output);
    for (std::string line; std::getline(text, line);) {
      line.erase(0, line.find("<pre id=\"m\">") == std::string::npos ? 0 : line.find("<pre id=\"m\">") + 12);
      if (line.starts_with("wide: ") || line.starts_with("narrow: ") || line.starts_with("pages: ")) {
        lines.push_back(line);
      }
    }
    return lines;
  }
};

TEST_F(Browser, NoPageIsWiderThanItsWindow) {
  std::vector<std::string> pages;
  for (const fs::path& file : files_of(site(), ".html")) {
    const std::string name = file.lexically_relative(site()).string();
    if (!name.starts_with("search/")) {
      pages.push_back(name);
    }
  }
  ASSERT_GT(pages.size(), 200U);
  for (const int width : {1280, 400}) {
    EXPECT_THAT(measured(pages, width), ::testing::ElementsAre("pages: " + std::to_string(pages.size())));
  }
}

TEST_F(Browser, AWidePageIsFound) {
  std::string html = page("reference-policy.html");
  const std::string sheet = "<link href=\"style.css\" rel=\"stylesheet\" type=\"text/css\"/>";
  ASSERT_NE(html.find(sheet), std::string::npos);
  html.replace(html.find(sheet), sheet.size(), "");
  std::ofstream(site() / "unstyled.html") << html;
  const std::vector<std::string> lines = measured({"unstyled.html"}, 400);
  fs::remove(site() / "unstyled.html");
  EXPECT_THAT(lines, Contains(StartsWith("wide: unstyled.html")));
}

TEST(Links, BrokenOnesAreFound) {
  const ScratchFolder folder;
  fs::create_directory(folder.path() / "search");
  const auto write = [&](const char* name, const char* text) { std::ofstream(folder.path() / name) << text; };
  write("a.html",
        R"(<a href="b.html#there">b</a> <a href="#here">a</a> <p id="here"> <a href="https://example.org/x">)");
  write("b.html", R"(<a name="there"></a><img src="a.html"/>)");
  write("search/all.js", "var x=[['a',['../a.html#here',1,'a']]];");
  EXPECT_THAT(Walk(folder.path()).broken, IsEmpty());
  EXPECT_EQ(Walk(folder.path()).links, 4U);
  write("c.html", R"(<a href="none.html"> <a href="b.html#none"> <img src="none.svg"/> <a href="../out.html">)");
  write("search/all.js", "var x=[['a',['../a.html#none',1,'a']]];");
  EXPECT_THAT(
      Walk(folder.path()).broken,
      ::testing::UnorderedElementsAre("c.html: none.html: no such file", "c.html: b.html#none: no such anchor",
                                      "c.html: none.svg: no such file", "c.html: ../out.html leads out of the site",
                                      "search/all.js: ../a.html#none: no such anchor"));
}

}  // namespace
}  // namespace gradwire::test
