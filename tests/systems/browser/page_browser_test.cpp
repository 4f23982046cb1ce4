// Tests reports in a headless Chromium, at 1280 and 400 pixels: one of a real job of 4 ranks with a slow one, and one
// of 1,024 ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <iostream>

#include "cli/page_support.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/systems/browser/chromium.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Browser : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kChromium.empty()) {
      GTEST_SKIP() << kNoChromium;
    }
  }

  [[nodiscard]] Outcome chromium(const std::string& arguments) const {
    return run_chromium(folder_.file("profile"), arguments);
  }
  static std::string url(const std::filesystem::path& file) { return file_url(file); }

  /// Makes a page that contains and measures another one, since a window of Chromium has at least 500 pixels.
  [[nodiscard]] std::filesystem::path measured(const std::filesystem::path& page, int width) const {
    std::filesystem::path file = page.parent_path() / ("measure-" + std::to_string(width) + ".html");
    std::ofstream(file) << "<!DOCTYPE html><body style=margin:0><iframe id=f style='border:0;width:" << width
                        << "px;height:3000px' src='" << page.filename().string()
                        << "'></iframe><pre id=m></pre><script>onload=()=>{const d=document.getElementById('f')"
                           ".contentDocument,r=d.documentElement,wide=[...d.body.querySelectorAll('*')].filter(e=>"
                           "!e.closest('.scroll')&&e.getBoundingClientRect().right>r.clientWidth+1).map(e=>e.tagName);"
                           "document.getElementById('m').textContent='measured '+r.scrollWidth+' of '+r.clientWidth+"
                           "' wide ['+wide.slice(0,5)+'] height '+r.scrollHeight}</script>";
    return file;
  }

  /// Checks the properties that every page must have. Returns its numbers.
  void expect_good(const std::filesystem::path& page) const {
    const auto report = nlohmann::ordered_json::parse(read_text(std::filesystem::path(page).replace_extension(".json")),
                                                      nullptr, false);
    ASSERT_FALSE(report.is_discarded());
    const Outcome dom = chromium("--dump-dom " + url(page));
    EXPECT_EQ(dom.status, 0) << dom.output;
    EXPECT_THAT(dom.output, Not(HasSubstr("CONSOLE"))) << "no error of the page";
    EXPECT_THAT(differences(dom.output, report), IsEmpty());
    EXPECT_EQ(shown_numbers(dom.output).size(), shown_numbers(read_text(page)).size()) << "the browser shows all";
    EXPECT_THAT(broken_anchors(dom.output), IsEmpty());
    for (const int width : {1280, 400}) {
      const Outcome outcome = chromium("--window-size=1400,3200 --dump-dom " + url(measured(page, width)));
      const std::string text = std::to_string(width);
      EXPECT_THAT(outcome.output, HasSubstr("measured " + text + " of " + text + " wide [] height"));
    }
  }

  ScratchFolder folder_;
};

// Returns the size of a picture; one with many drawn shapes compresses less.
std::uintmax_t picture_bytes(const std::filesystem::path& picture) {
  std::error_code ignored;
  const auto bytes = std::filesystem::file_size(picture, ignored);
  return ignored ? 0 : bytes;
}

TEST_F(Browser, ThePageOfARealJobNamesTheSlowRank) {
  const std::string root = ::geteuid() == 0 ? "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " : "";
  const Outcome job =
      run_program(root + "timeout -k 5 120 '" + GRADWIRE_TOOL + "' run --report '" + folder_.file("report") + "' -- '" +
                  GRADWIRE_MPIEXEC + "' --oversubscribe -np 4 '" + GRADWIRE_BIN + "/slow_rank' 2 30 100");
  ASSERT_EQ(job.status, 0) << job.output;
  const std::filesystem::path page = folder_.path() / "report" / "report.html";
  const std::string html = read_text(page);
  EXPECT_THAT(html, ::testing::ContainsRegex("Ranks wait [0-9]+% of a step for rank 2, which computes longer"))
      << job.output;
  EXPECT_THAT(html, HasSubstr("slow</span>: computes longer"));
  EXPECT_THAT(html, HasSubstr("<b>rank 2</b>"));
  expect_good(page);
  for (const char* colours : {"", "--blink-settings=preferredColorScheme=0 "}) {
    const std::filesystem::path picture = folder_.path() / "page.png";
    const Outcome shot =
        chromium(std::string(colours) + "--window-size=1280,2600 --screenshot='" + picture.string() + "' " + url(page));
    EXPECT_EQ(shot.status, 0) << shot.output;
    const std::filesystem::path blank = folder_.path() / "blank.png";
    static_cast<void>(chromium("--window-size=1280,2600 --screenshot='" + blank.string() + "' about:blank"));
    EXPECT_GT(picture_bytes(picture), 5 * picture_bytes(blank)) << "something is drawn";
    EXPECT_GT(picture_bytes(picture), 60'000U);
    std::filesystem::remove(picture);
  }
}

TEST_F(Browser, APageOfAThousandRanksOpensQuickly) {
  const PlannedJob plan{.ranks = 1024, .steps = 100'000, .samples = 128, .rank = [](int rank) {
                          return rank == 700 ? PlannedRank{.step = 0.1, .compute = 0.09, .wait = 0.001}
                                             : PlannedRank{.step = 0.1, .compute = 0.06, .wait = 0.03};
                        }};
  write_histories(planned_job(plan), folder_.path());
  const auto began = std::chrono::steady_clock::now();
  const page::Summary summary =
      page::write_page(folder_.path(), {folder_.path() / "big.html", folder_.path() / "big.json"});
  const std::chrono::duration<double> making = std::chrono::steady_clock::now() - began;
  ASSERT_FALSE(summary.advice.empty());
  EXPECT_THAT(summary.advice[0], HasSubstr("rank 700"));
  const std::filesystem::path page = folder_.path() / "big.html";
  EXPECT_LT(std::filesystem::file_size(page), 5'000'000U);
  expect_good(page);
  std::ofstream(folder_.path() / "time.html")
      << "<!DOCTYPE html><iframe id=f style='width:1280px;height:3000px'></iframe><pre id=m></pre><script>const f="
         "document.getElementById('f'),t=performance.now();f.onload=()=>{f.contentDocument.body.offsetHeight;"
         "document.getElementById('m').textContent='opened in '+Math.round(performance.now()-t)+' ms'};"
         "f.src='big.html'</script>";
  const Outcome opened = chromium("--dump-dom " + url(folder_.path() / "time.html"));
  const std::size_t at = opened.output.find("opened in ");
  EXPECT_NE(at, std::string::npos) << opened.output.substr(0, 2000);
  std::cout << "page of 1,024 ranks: " << std::filesystem::file_size(page) << " bytes, made in " << making.count()
            << " s, " << (at == std::string::npos ? "" : opened.output.substr(at, opened.output.find('<', at) - at))
            << '\n';
}

}  // namespace
}  // namespace gradwire::test
