// Tests processes that are threads of one process: what they hear about ends, and about links that break and heal.
#include <gmock/gmock.h>

#include "gradwire/processes.hpp"
#include "tests/support/error_of.hpp"
#include "transport/inproc_links.hpp"

namespace gradwire::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using transport::break_link;
using transport::heal_link;
using transport::Witness;

void say(Processes& from, Processes::Id to, const std::string& text) { from.send(to, std::as_bytes(std::span(text))); }

std::vector<std::string> hear(Processes& one) {
  std::vector<std::string> heard;
  for (const Processes::Heard& each : one.hear(std::chrono::milliseconds(0))) {
    const std::string from = std::to_string(each.from) + " ";
    heard.push_back(
        from + (each.ended  ? "ended in " + std::to_string(each.epoch) + " at " + std::to_string(each.step)
                : each.lost ? "lost"
                : each.back ? "back"
                            : std::string(reinterpret_cast<const char*>(each.message.data()), each.message.size())));
  }
  return heard;
}

TEST(InprocProcesses, AnEndNamesTheWorldAndTheStep) {
  const auto all = make_inproc_processes(2);
  all[1]->enter(3);
  all[1]->count(17);
  say(*all[1], 0, "last");
  all[1]->end();
  EXPECT_THAT(hear(*all[0]), ElementsAre("1 last", "1 ended in 3 at 17"));
}

TEST(InprocProcesses, ALinkThatHealsLosesNothing) {
  const auto all = make_inproc_processes(3);
  break_link(*all[0], 1);
  break_link(*all[1], 0);  // it is broken already
  say(*all[0], 1, "a");
  say(*all[1], 0, "b");
  say(*all[2], 1, "c");
  say(*all[0], 1, "d");
  EXPECT_THAT(hear(*all[0]), ElementsAre("1 lost"));
  EXPECT_THAT(hear(*all[1]), ElementsAre("0 lost", "2 c"));
  heal_link(*all[1], 0);
  EXPECT_THAT(hear(*all[0]), ElementsAre("1 back", "1 b"));
  EXPECT_THAT(hear(*all[1]), ElementsAre("0 back", "0 a", "0 d"));
  EXPECT_THAT(hear(*all[2]), IsEmpty());
}

TEST(InprocProcesses, AWitnessMayBeOutOfReach) {
  const auto all = make_inproc_processes(3);
  break_link(*all[0], 1);
  break_link(*all[2], 1, Witness::out_of_reach);
  all[1]->end();
  EXPECT_THAT(hear(*all[0]), ElementsAre("1 lost", "1 ended in 0 at 0"));
  EXPECT_THAT(hear(*all[2]), ElementsAre("1 lost"));
  heal_link(*all[2], 1);
  EXPECT_THAT(hear(*all[2]), IsEmpty()) << "this process is gone";
}

TEST(InprocProcesses, WhoTrustsResetsHearsOfAnEnd) {
  const auto all = make_inproc_processes(2);
  all[0]->trust_resets();
  break_link(*all[0], 1);
  heal_link(*all[0], 1);
  say(*all[1], 0, "still here");
  EXPECT_THAT(hear(*all[0]), ElementsAre("1 ended in 0 at 0"));
  EXPECT_THAT(hear(*all[1]), ElementsAre("0 lost", "0 back"));
  EXPECT_EQ(error_of([&] { break_link(*all[0], 7); }).code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace gradwire::test
