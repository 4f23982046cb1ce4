// Tests memory that two tensors of a session share, and which would be reduced twice: add() refuses it, and names both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "gradwire/session.hpp"
#include "tests/support/error_of.hpp"

namespace gradwire::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Session one_rank() { return Session(make_inproc_world(1)[0], Policy::uniform("exact")); }

void expect_refused(const std::function<void()>& add, const std::string& first, const std::string& second) {
  const Error error = error_of(add);
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), AllOf(HasSubstr(first), HasSubstr(second), HasSubstr("overlaps")));
}

// Mutations tried, each fails here: only the preceding extent is checked; only the following one is checked; ends are
// included.
TEST(SharedMemory, OfTwoGradientsIsRefusedByBothNames) {
  std::array<float, 100> memory{};
  Session session = one_rank();
  session.add("embed.weight", view(&memory[20], 20));
  session.add("head.bias", view(&memory[60], 20));
  const auto refused = [&](std::size_t at, std::size_t count, const std::string& with) {
    expect_refused([&] { session.add("head.weight", view(&memory[at], count)); }, "the gradient of \"head.weight\"",
                   "the gradient of \"" + with + "\"");
  };
  refused(20, 20, "embed.weight");
  refused(39, 5, "embed.weight");
  refused(10, 11, "embed.weight");
  refused(25, 2, "embed.weight");
  refused(10, 90, "embed.weight");
  refused(41, 20, "head.bias");
  session.add("before", view(memory.data(), 20));  // adjacent tensors do not overlap
  session.add("between", view(&memory[40], 20));
  session.add("nothing", view(&memory[30], 0));
  session.add("", view(&memory[80], 10));
  expect_refused([&] { session.add("last", view(&memory[89], 2)); }, "\"last\"", "\"\"");
}

TEST(SharedMemory, OfParametersAndStateIsRefused) {
  std::array<float, 100> memory{};
  const auto at = [&](std::size_t begin) { return view(&memory[begin], 10); };
  Session session = one_rank();
  session.add("a", at(0), at(10), {at(20), at(30)});
  expect_refused([&] { session.add("b", at(40), at(15)); }, "the parameter of \"b\"", "the parameter of \"a\"");
  expect_refused([&] { session.add("b", at(29)); }, "the gradient of \"b\"", "state 1 of \"a\"");
  expect_refused([&] { session.add("b", at(40), at(50), {at(35)}); }, "state 1 of \"b\"", "state 2 of \"a\"");
  expect_refused([&] { session.add("b", at(40), at(45)); }, "the parameter of \"b\"", "the gradient of the same");
  expect_refused(
      [&] {
        session.add("b", at(40), at(50), {at(60), at(60)});
      },
      "state 2 of \"b\"", "state 1 of the same");
  session.add("b", at(40), at(50), {at(60)});  // nothing of the refused tensor was kept
}

// Scales are only read, so tensors may share one; a gradient may not overlap it.
TEST(SharedMemory, OfScalesIsAllowedAmongThemselves) {
  std::array<float, 60> memory{};
  const auto scale = [&](std::size_t begin) { return TensorOptions{.scale = {&memory[begin], 10}}; };
  Session session = one_rank();
  session.add("a", view(memory.data(), 10), scale(20));
  session.add("b", view(&memory[10], 10), scale(20));
  session.add("c", view(&memory[50], 10), scale(25));
  expect_refused([&] { session.add("d", view(&memory[34], 10)); }, "the gradient of \"d\"", "the scale of \"a\"");
  expect_refused([&] { session.add("d", view(&memory[40], 10), scale(5)); }, "the scale of \"d\"",
                 "the gradient of \"a\"");
  expect_refused([&] { session.add("d", view(&memory[40], 10), scale(40)); }, "the scale of \"d\"",
                 "the gradient of the same");
  session.add("d", view(&memory[40], 10));
}

}  // namespace
}  // namespace gradwire::test
