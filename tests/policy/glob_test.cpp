// Tests globs: matching and containment against brute force over all short names of a small alphabet.
#include "policy/glob.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "gradwire/error.hpp"

namespace gradwire::policy {
namespace {

TEST(Glob, Matches) {
  struct Case {
    const char* glob;
    const char* name;
    bool matches;
  };
  for (const Case& c : std::vector<Case>{{"*", "", true},
                                         {"*", "anything.at.all", true},
                                         {"a", "a", true},
                                         {"a", "aa", false},
                                         {"a", "", false},
                                         {"?", "", false},
                                         {"?", "\xc3", true},
                                         {"*.bias", "fc1.bias", true},
                                         {"*.bias", "fc1.bias2", false},
                                         {"*.bias", "bias", false},
                                         {"layer*.weight", "layer.3.weight", true},
                                         {"*a*b*c*", "xxaxxbxxcxx", true},
                                         {"*a*b*c*", "xxaxxcxxbxx", false},
                                         {"h.[0-3].w", "h.2.w", true},
                                         {"h.[0-3].w", "h.4.w", false},
                                         {"h.[!0-3].w", "h.4.w", true},
                                         {"h.[!0-3].w", "h.0.w", false},
                                         {"[a-c-]", "-", true},
                                         {"[a-c-]", "b", true},
                                         {"[*]x", "*x", true},
                                         {"[*]x", "ax", false},
                                         {"a]", "a]", true},
                                         {"[[]", "[", true},
                                         {"**a**", "bab", true}}) {
    EXPECT_EQ(Glob(c.glob).matches(c.name), c.matches) << c.glob << " against " << c.name;
  }
}

TEST(Glob, RefusesWhatCanNeverBeMeant) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "it is empty"},          {"a[bc", "no closing ]"},
      {"a[", "no closing ]"},       {"a[]b", "without members"},
      {"a[!]b", "without members"}, {"[z-a]", "z-a is backwards"},
      {"[\xc3\xa4]", "ASCII only"}, {std::string(257, 'a'), "more than 256 bytes"}};
  for (const auto& [glob, what] : cases) {
    try {
      (void)Glob(glob);
      ADD_FAILURE() << glob << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  }
}

TEST(Glob, Contains) {
  struct Case {
    const char* general;
    const char* special;
    bool contains;
  };
  for (const Case& c : std::vector<Case>{{"*", "*.bias", true},
                                         {"*.bias", "*", false},
                                         {"*.bias", "fc1.bias", true},
                                         {"*.bias", "*.bias", true},
                                         {"?*", "*?", true},
                                         {"*?", "?*", true},
                                         {"?*", "*", false},
                                         {"*a*", "*a*a*", true},
                                         {"*a*a*", "*a*", false},
                                         {"[a-f]*", "[bc]x*", true},
                                         {"[!b]*", "[!ab]*", true},
                                         {"[!ab]*", "[!b]*", false},
                                         {"layer?.w", "layer[0-9].w", true},
                                         {"layer[0-9].w", "layer?.w", false},
                                         {"*weight", "*.weight", true},
                                         {"a?c", "abc", true},
                                         {"a*c", "a*b*c", true}}) {
    EXPECT_EQ(Glob(c.general).contains(Glob(c.special)), c.contains) << c.general << " contains " << c.special;
  }
}

std::vector<std::string> names_up_to(std::size_t length) {
  std::vector<std::string> names{""};
  for (std::size_t begin = 0; names[begin].size() < length; ++begin) {
    for (const char c : {'a', 'b', 'c'}) {
      names.push_back(names[begin] + c);
    }
  }
  return names;
}

// Matches by the definition, without any optimisation.
bool matches_slowly(std::string_view glob, std::string_view name) {
  if (glob.empty()) {
    return name.empty();
  }
  if (glob.front() == '*') {
    return matches_slowly(glob.substr(1), name) || (!name.empty() && matches_slowly(glob, name.substr(1)));
  }
  if (name.empty()) {
    return false;
  }
  std::size_t used = 1;
  bool fits = glob.front() == '?' || glob.front() == name.front();
  if (glob.front() == '[') {
    used = glob.find(']') + 1;
    const std::string_view members = glob.substr(1, used - 2);
    fits = members.front() == '!' ? members.find(name.front()) == std::string_view::npos
                                  : members.find(name.front()) != std::string_view::npos;
  }
  return fits && matches_slowly(glob.substr(used), name.substr(1));
}

TEST(Glob, AgreesWithBruteForce) {
  const unsigned seed = 20240607;
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(seed);
  // The names use all letters that the globs distinguish ("c" stands for all others), and are longer than any
  // counterexample.
  const std::vector<std::string> names = names_up_to(7);
  const std::vector<std::string> pieces{"a", "b", "?", "*", "*", "[ab]", "[!a]", "[!ab]"};
  const auto random_glob = [&] {
    std::string glob;
    for (std::size_t length = 1 + random() % 4; length > 0; --length) {
      glob += pieces[random() % pieces.size()];
    }
    return glob;
  };
  int contained = 0;
  for (int round = 0; round < 600; ++round) {
    const std::string a = random_glob();
    const std::string b = random_glob();
    const Glob general(a);
    const Glob special(b);
    bool expected = true;
    for (const std::string& name : names) {
      const bool in_b = special.matches(name);
      ASSERT_EQ(in_b, matches_slowly(b, name)) << b << " against " << name << ", seed " << seed;
      expected = expected && (!in_b || general.matches(name));
    }
    ASSERT_EQ(general.contains(special), expected) << a << " contains " << b << ", seed " << seed;
    contained += expected ? 1 : 0;
  }
  EXPECT_GT(contained, 30) << "too few positive cases to mean anything";
}

TEST(Glob, GivesUpSoundlyOnPairsThatAreTooHard) {
  // The general glob needs exponentially many states; both answers would be right, but not "contained".
  const Glob hard("*a" + std::string(60, '?') + "b*");
  EXPECT_FALSE(hard.contains(Glob("*a*b*a*b*")));
  EXPECT_TRUE(Glob("*").contains(hard));
}

}  // namespace
}  // namespace gradwire::policy
