// Runs jobs with a key under the drop-in: compressed calls are encrypted, the others are counted as in clear text, and
// ranks without the key, or with another one, compress nothing.
#include "tests/mpi_preload/preload.hpp"

namespace gradwire::test {
namespace {

class SealedPreload : public Preload {
 protected:
  // Writes a key and returns the variable that names it.
  [[nodiscard]] std::string key(const std::string& name) const {
    const std::filesystem::path file = work_ / name;
    if (!std::filesystem::exists(file)) {
      std::ofstream(file) << std::string(31, 'k') << name.front();
      std::filesystem::permissions(file, std::filesystem::perms::owner_read);
    }
    return "GRADWIRE_KEY=file:" + file.string();
  }
};

TEST_P(SealedPreload, CompressedCallsAreEncryptedAndOthersCounted) {
  for (const int ranks : {2, 3}) {
    const Outcome outcome = with(ranks, preload() + ' ' + key("a"), "compressed");
    expect_ok(outcome, "compressed");
    EXPECT_TRUE(contains(outcome, "different yes"));
    EXPECT_TRUE(contains(outcome, "; all encrypted")) << outcome.output;
    EXPECT_EQ(compressed_calls(report()), static_cast<std::uint64_t>(11 * ranks));
    EXPECT_EQ(report().at("totals").at("in_clear_text").at("calls"), 0U);
  }
  const Outcome small = with(2, preload() + ' ' + key("a"), "exact_types");
  expect_ok(small, "exact_types");
  EXPECT_TRUE(contains(small, "; in clear text: ")) << small.output;
  const json totals = report().at("totals");
  EXPECT_EQ(totals.at("in_clear_text").at("calls"), totals.at("calls"));
  EXPECT_EQ(totals.at("in_clear_text").at("bytes"), totals.at("bytes_in"));
  EXPECT_FALSE(contains(with(2, preload(), "compressed"), "encrypted"));
  EXPECT_FALSE(report().at("totals").contains("in_clear_text")) << "there is no key";
}

TEST_P(SealedPreload, EveryKindOfCallIsEncrypted) {
  for (const std::string name : {"rooted", "communicators", "threads", "request_programs multiple"}) {
    const Outcome outcome = with(2, preload() + ' ' + key("a"), name);
    expect_ok(outcome, name.substr(0, name.find(' ')));
    EXPECT_GT(compressed_calls(report()), 0U) << name;
  }
}

TEST_P(SealedPreload, RanksWithOtherKeysCompressNothing) {
  SKIP_WITHOUT_SEVERAL_PROGRAMS();
  for (const std::string& other : {std::string(), key("b")}) {
    const Outcome outcome =
        with_each({preload() + ' ' + key("a"), preload() + ' ' + (other.empty() ? "X=1" : other)}, "compressed");
    expect_ok(outcome, "compressed");
    EXPECT_TRUE(contains(outcome, "different no")) << outcome.output;
    EXPECT_TRUE(contains(outcome, "ranks differ")) << outcome.output;
  }
}

TEST_P(SealedPreload, AKeyThatCannotBeReadIsSaid) {
  const Outcome outcome = with(2, preload() + " GRADWIRE_KEY=file:/nowhere/job.key", "compressed");
  expect_ok(outcome, "compressed");
  EXPECT_TRUE(contains(outcome, "every call is passed through")) << outcome.output;
  EXPECT_TRUE(contains(outcome, "/nowhere/job.key")) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(Libraries, SealedPreload, ::testing::ValuesIn(libraries()),
                         [](const auto& library) { return library.param.name; });

}  // namespace
}  // namespace gradwire::test
