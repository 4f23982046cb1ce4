// Tests that rules are refused if an earlier rule leaves nothing for them, and that all other rules are accepted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "gradwire/error.hpp"
#include "gradwire/policy.hpp"
#include "policy/rule.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::policy {
namespace {

std::string two_rules(const std::string& first, const std::string& second) {
  return "version = 1\n[[rule]]\n" + first + "\n[[rule]]\n" + second + "\n";
}

TEST(Shadow, NamesBothRulesAndLines) {
  try {
    (void)Policy::parse(two_rules("match = \"*.bias\"", "match = \"fc1.bias\"\nmin_bytes = 1024"), "p.toml");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(
        error.what(),
        "p.toml:4:1: rule 2 (fc1.bias, at least 1KiB) can never apply: rule 1 at line 2 (*.bias) matches all its "
        "tensors first; put it above that rule or remove it");
  }
}

TEST(Shadow, Table) {
  struct Case {
    std::string first;
    std::string second;
    bool shadowed;
  };
  for (const Case& c :
       std::vector<Case>{{"codec = \"exact\"", "match = \"a\"", true},
                         {"match = \"a\"", "codec = \"exact\"", false},
                         {"match = \"*\"", "codec = \"exact\"", false},  // also matches tensors without a name
                         {"codec = \"exact\"", "match = \"*\"", true},
                         {"match = \"*\"", "match = \"a\"", true},
                         {"match = \"a*\"", "match = \"[ab]*\"", false},
                         {"match = \"[ab]*\"", "match = \"a*\"", true},
                         {"match = \"a\"", "match = \"a\"", true},
                         {"match = \"a\"\nndim = 2", "match = \"a\"", false},
                         {"match = \"*\"\nndim = 2", "match = \"a\"\nndim = 2\ndtype = \"f32\"", true},
                         {"ndim = 2", "ndim = 1", false},
                         {"dtype = \"f32\"", "dtype = \"f16\"", false},
                         {"min_bytes = 10", "min_bytes = 20", true},
                         {"min_bytes = 20", "min_bytes = 10", false},
                         {"max_bytes = 20", "max_bytes = 10", true},
                         {"min_bytes = 10\nmax_bytes = 20", "min_bytes = 12\nmax_bytes = 20", true},
                         {"min_bytes = 10\nmax_bytes = 20", "min_bytes = 12\nmax_bytes = 21", false},
                         {"min_bytes = 10\nmax_bytes = 20", "min_bytes = 12", false},
                         {"order = [0, 7]", "order = 3", true},
                         {"order = [0, 7]", "order = [3, 8]", false},
                         {"order = 3", "order = 3\nndim = 1", true},
                         {"order = 3", "ndim = 1", false},
                         {"communicator_size = 4", "communicator_size = 4\norder = 1", true},
                         {"communicator_size = 4", "order = 1", false},
                         {"communicator_name = \"dp*\"", "communicator_name = \"dp0\"", true},
                         {"communicator_name = \"dp*\"", "ndim = 1", false},
                         {"min_bytes = 0", "ndim = 1", true}}) {
    const std::string text = two_rules(c.first, c.second);
    if (c.shadowed) {
      EXPECT_THROW((void)Policy::parse(text), Error) << text;
    } else {
      EXPECT_NO_THROW((void)Policy::parse(text)) << text;
    }
  }
}

// Compares with all tensors of a small universe: covers() must be exactly "matches whatever the later one matches".
TEST(Shadow, AgreesWithBruteForce) {
  const unsigned seed = 7;
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<TensorInfo> universe;
  for (const char* name : {"", "a", "b", "c", "aa", "ab", "ba", "cc", "abc", "caa", "aaaa"}) {
    for (std::uint64_t count = 0; count < 6; ++count) {
      for (const DType dtype : {DType::f32, DType::f16}) {
        for (std::uint32_t ndim = 0; ndim < 3; ++ndim) {
          universe.push_back({name, count, dtype, ndim});
          for (std::uint64_t order = 0; order < 3; ++order) {
            universe.push_back({name, count, dtype, ndim, order, static_cast<std::uint32_t>(1 + (order + count) % 2)});
          }
        }
      }
    }
  }
  const auto random_match = [&] {
    const std::vector<std::string> globs{"*", "a*", "*a", "a", "?", "[ab]*", "*b*"};
    RuleMatch match;
    if (random() % 2 == 0) {
      match.glob = globs[random() % globs.size()];
    }
    if (random() % 3 == 0) {
      match.min_bytes = 4 * (random() % 3);
    }
    if (random() % 3 == 0) {
      match.max_bytes = 8 + 4 * (random() % 3);
    }
    if (random() % 4 == 0) {
      match.ndim = random() % 3;
    }
    if (random() % 4 == 0) {
      match.dtype = random() % 2 == 0 ? DType::f32 : DType::f16;
    }
    if (random() % 4 == 0) {
      const std::uint64_t first = random() % 3;
      match.order = OrderRange{first, first + random() % 2};
    }
    if (random() % 4 == 0) {
      match.communicator_size = 1 + random() % 2;
    }
    return match;
  };
  int covered = 0;
  for (int round = 0; round < 8000; ++round) {
    const RuleMatcher earlier(random_match());
    const RuleMatcher later(random_match());
    Glob::Effort effort;
    if (!earlier.covers(later, effort)) {
      continue;
    }
    ++covered;
    for (const TensorInfo& tensor : universe) {
      ASSERT_TRUE(!later.matches(tensor) || earlier.matches(tensor))
          << earlier.describe() << " does not cover " << later.describe() << " for \"" << tensor.name << "\" x "
          << tensor.count << ", seed " << seed;
    }
  }
  EXPECT_GT(covered, 100);
}

TEST(Rule, SizesDoNotOverflow) {
  const RuleMatcher large(RuleMatch{.min_bytes = 1ULL << 40});
  EXPECT_TRUE(large.matches({"x", ~0ULL, DType::f64, 1}));
  EXPECT_EQ(tensor_bytes({"x", ~0ULL / 2, DType::f32, 1}), ~0ULL);
  EXPECT_EQ(tensor_bytes({"x", 3, DType::bf16, 1}), 6U);
}

// There are 1,000 globs that overlap, each of which takes thousands of states: without a common bound for all pairs,
// this takes minutes.
TEST(Shadow, ManyHardGlobsTakeBoundedWork) {
  constexpr std::size_t kRules = test::kStepShare == 1 ? 1000 : 5;  // sanitizers need not test the bound
  std::string text = "version = 1\n";
  std::vector<Glob> globs;
  for (int i = 0; i < static_cast<int>(kRules); ++i) {
    const auto letter = [](int from, int of) { return static_cast<char>(from + of % 8); };
    const std::string glob = std::string("*[0") + letter('A', i) + letter('I', i / 8) + letter('a', i / 64) +
                             letter('i', i / 512) + "]???????????[01]*";
    text += "[[rule]]\nmatch = \"" + glob + "\"\n";
    globs.emplace_back(glob);
  }
  EXPECT_EQ(Policy::parse(text, "p.toml").rules.size(), kRules);

  Glob::Effort effort{1U << 20U};
  for (const Glob& one : globs) {
    EXPECT_EQ(globs.back().contains(one, effort), false) << one.text();
    if (&one == &globs[kRules - 2]) {
      break;
    }
  }
  EXPECT_LT(effort.left, 1U << 20U);
  Glob::Effort none{0};
  EXPECT_FALSE(Glob("*").contains(Glob("a"), none)) << "an unaffordable check claims nothing";
}

}  // namespace
}  // namespace gradwire::policy
