// Tests how gradwire top shows a job: which ranks are slow, and its lines on screens of several sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "watch/live/view.hpp"

namespace gradwire::watch::live {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

RankRow row(int rank, double exposed, RankState state = RankState::running) {
  RankRow row;
  row.now.name = {"library", rank};
  row.now.world_size = 4;
  row.now.has_tiers = true;
  row.now.codec = "int8";
  row.now.counters.waits = 500;
  row.now.counters.bytes_sent = 1.5e9;
  row.rates = {.seconds = 5,
               .steps = 12.34,
               .calls = {},
               .exposed = exposed,
               .sent = 246e6,
               .intra = 200e6,
               .inter = 46e6,
               .ratio = 3.88};
  row.age = 2.5;
  row.state = state;
  return row;
}

std::vector<RankRow> rows_with(const std::vector<double>& shares) {
  std::vector<RankRow> rows;
  for (const double share : shares) {
    rows.push_back(row(static_cast<int>(rows.size()), share));
  }
  return rows;
}

std::vector<int> slow_of(std::vector<RankRow> rows) {
  mark_slow(rows);
  std::vector<int> slow;
  for (const RankRow& each : rows) {
    if (each.state == RankState::slow) {
      slow.push_back(each.now.name.second);
    }
  }
  return slow;
}

std::vector<std::string> texts(const std::vector<StyledLine>& lines) {
  std::vector<std::string> texts;
  for (const StyledLine& line : lines) {
    texts.push_back(line.text);
  }
  return texts;
}

std::string joined(const std::vector<StyledLine>& lines) {
  std::string text;
  for (const StyledLine& line : lines) {
    text += line.text + "\n";
  }
  return text;
}

TEST(TopSlow, IsWhoWaitsFarLessThanTheOthers) {
  EXPECT_THAT(slow_of(rows_with({0.45, 0.44, 0.05, 0.46})), ElementsAre(2));
  EXPECT_THAT(slow_of(rows_with({0.05, 0.45})), ElementsAre(0)) << "this also holds for two ranks";
  EXPECT_THAT(slow_of(rows_with({0.05, 0.45, 0.44, 0.06, 0.43})), ElementsAre(0, 3));
  EXPECT_THAT(slow_of(rows_with({0.31, 0.30, 0.25, 0.33})), IsEmpty()) << "a healthy job names nobody";
  EXPECT_THAT(slow_of(rows_with({0.9, 0.1, 0.1, 0.1})), IsEmpty()) << "a rank that waits longer makes no other slow";
  EXPECT_THAT(slow_of(rows_with({0.5})), IsEmpty());
  EXPECT_THAT(slow_of({}), IsEmpty());
}

TEST(TopSlow, ComparesOnlyRanksThatRunAndAreOfOnePart) {
  std::vector<RankRow> rows = rows_with({0.05, 0.45, 0.44});
  rows[0].state = RankState::ended;
  EXPECT_THAT(slow_of(rows), IsEmpty());
  rows[0].state = RankState::running;
  rows[0].now.name.first = "mpi";
  EXPECT_THAT(slow_of(rows), IsEmpty());
  rows[0].now.name.first = "library";
  rows[0].rates.exposed.reset();
  EXPECT_THAT(slow_of(rows), IsEmpty());
}

TEST(TopSlow, IsWhomTheRanksThemselvesNamed) {
  std::vector<RankRow> rows = rows_with({0.05, 0.45, 0.44, 0.44});
  rows[0].now.slow = false;
  rows[3].now.slow = true;
  EXPECT_THAT(slow_of(rows), ElementsAre(3));
}

TEST(TopState, FollowsFromTheFile) {
  FolderSnapshot snapshot;
  snapshot.time = 1000;
  for (const auto& [rank, written, ended] : {std::tuple(0, 998.0, false), {1, 980.0, false}, {2, 10.0, true}}) {
    RankValues values = row(rank, 0).now;
    values.written = written;
    values.ended = ended;
    snapshot.ranks.push_back(values);
  }
  snapshot.ranks.front().written = 1002;  // the clock of another host
  const std::vector<RankRow> rows = rows_of(snapshot, RateTracker());
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].state, RankState::running);
  EXPECT_EQ(rows[0].age, 0);
  EXPECT_EQ(rows[1].state, RankState::silent);
  EXPECT_EQ(rows[1].age, 20);
  EXPECT_EQ(rows[2].state, RankState::ended);
}

TEST(TopDrawing, ShowsAJobOnATerminalOf80Columns) {
  std::vector<RankRow> rows = rows_with({0.45, 0.44, 0.05, 0.46});
  rows[1].now.counters.errors = 1;
  mark_slow(rows);
  const std::vector<StyledLine> lines =
      draw({}, rows, {.folder = "/tmp/metrics", .width = 80, .height = 24, .keys = true});
  EXPECT_THAT(texts(lines),
              ElementsAre("gradwire top: 4 of 4 ranks, 1 slow, 1 error  /tmp/metrics",
                          "12.3 steps/s, exposed 35%, 984MB/s sent, ratio 3.88, over the last 5s",
                          "rank  state    step/s  exposed  intra/s  inter/s  ratio  codec     age  errors",
                          "   0             12.3      45%    200MB   46.0MB   3.88  int8       2s       0",
                          "   1             12.3      44%    200MB   46.0MB   3.88  int8       2s       1",
                          "   2  slow       12.3       5%    200MB   46.0MB   3.88  int8       2s       0",
                          "   3             12.3      46%    200MB   46.0MB   3.88  int8       2s       0",
                          "exposed: share of the time inside finish(); ratio: bytes uncompressed / sent;",
                          "codec: all but exact(+zstd) are lossy; age: of the rank's file",
                          "Rank 2 is slow: the others wait for it.", "q quits"));
  EXPECT_EQ(lines[2].emphasis, Emphasis::head);
  EXPECT_EQ(lines[3].emphasis, Emphasis::none);
  EXPECT_EQ(lines[4].emphasis, Emphasis::strong) << "this rank has an error";
  EXPECT_EQ(lines[5].emphasis, Emphasis::strong);
}

TEST(TopDrawing, LeavesOutWhatMattersLeastWhereItIsNarrow) {
  std::vector<RankRow> rows = rows_with({0.45, 0.05});
  mark_slow(rows);
  const std::string narrow = joined(draw({}, rows, {.folder = "/tmp", .width = 40, .height = 24}));
  EXPECT_THAT(narrow, HasSubstr("rank  state    step/s  exposed  ratio\n"));
  EXPECT_THAT(narrow, HasSubstr("   1  slow       12.3       5%   3.88\n"));
  const std::string wide = joined(draw({}, rows, {.folder = "/tmp", .width = 160, .height = 24}));
  for (const char* head : {"part", "sent/s", "steps", "dropped", "  sent"}) {
    EXPECT_THAT(narrow, Not(HasSubstr(std::string(head) + "\n")));
    EXPECT_THAT(wide, HasSubstr(head));
  }
}

TEST(TopDrawing, OfADropInShowsCallsAndNoColumnOfWhatNobodyKnows) {
  std::vector<RankRow> rows = rows_with({0.4});
  rows[0].now.name.first = "mpi";
  rows[0].now.counters.waits = 0;
  rows[0].now.counters.replaced_calls = 100;
  rows[0].now.has_tiers = false;
  rows[0].now.codec.clear();
  rows[0].rates = {
      .seconds = 5, .steps = {}, .calls = 40, .exposed = 0.4, .sent = 2e6, .intra = {}, .inter = {}, .ratio = {}};
  EXPECT_THAT(joined(draw({}, rows, {.folder = "/", .width = 80, .height = 24})),
              AllOf(HasSubstr("rank  part  state    calls/s  exposed  sent/s  age  errors"),
                    HasSubstr("   0  mpi               40.0      40%  2.00MB   2s       0"),
                    EndsWith("\nexposed: share of the time inside the calls; age: of the rank's file\n")));
  EXPECT_THAT(joined(draw({}, rows, {.folder = "/", .width = 80, .height = 4})), Not(HasSubstr("exposed:")))
      << "where there is no room, rows come first";
}

TEST(TopDrawing, GivesTheCodecTheWidthThatIsLeft) {
  std::vector<RankRow> rows = rows_with({0.4});
  rows[0].now.codec = "auto:topk(41/4096)+int8,exact";
  EXPECT_THAT(joined(draw({}, rows, {.folder = "/", .width = 80, .height = 24})), HasSubstr("  auto:top..   2s"));
  EXPECT_THAT(joined(draw({}, rows, {.folder = "/", .width = 132, .height = 24})),
              HasSubstr("  auto:topk(41/4096)+int8,exact  "));
}

TEST(TopDrawing, ShowsTheSlowestFirstWhereThereIsNoPlaceForAll) {
  std::vector<RankRow> rows;
  for (int rank = 0; rank < 100; ++rank) {
    rows.push_back(row(rank, 0.4 + 0.0001 * (100 - rank)));
  }
  rows[0].state = RankState::ended;
  rows[70].rates.exposed = 0.05;
  rows[80].state = RankState::silent;
  rows[81].state = RankState::stalled;
  mark_slow(rows);
  const std::vector<StyledLine> lines = draw({}, rows, {.folder = "/", .width = 80, .height = 24, .keys = true});
  ASSERT_EQ(lines.size(), 24U);
  EXPECT_THAT(lines[3].text, StartsWith("  70  slow"));
  EXPECT_THAT(lines[4].text, StartsWith("  80  silent"));
  EXPECT_THAT(lines[5].text, StartsWith("  81  stalled"));
  EXPECT_THAT(lines[6].text, StartsWith("  99  ")) << "of the other ranks, this one waits least";
  EXPECT_EQ(lines[19].text, "and 84 more");
  EXPECT_EQ(lines[20].text, "Rank 70 is slow: the others wait for it.");
  EXPECT_THAT(joined(draw({}, rows, {.folder = "/", .width = 80})), HasSubstr("\n  99  ")) << "no limit";
}

TEST(TopDrawing, CountsARankOfTwoPartsOnce) {
  std::vector<RankRow> rows = rows_with({0.4, 0.4, 0.4});
  rows[2].now.name.second = 1;  // the job's own session, beside the drop-in
  rows[1].state = rows[2].state = RankState::silent;
  const std::string text = joined(draw({}, rows, {.folder = "/", .width = 120, .height = 24, .keys = true}));
  EXPECT_THAT(text, HasSubstr("1 silent"));
  EXPECT_THAT(text, HasSubstr("Rank 1 is silent: "));
}

TEST(TopDrawing, FitsEverySize) {
  std::vector<RankRow> rows = rows_with(std::vector<double>(30, 0.4));
  rows[3].rates = {.seconds = 1e300,
                   .steps = 1e300,
                   .calls = 1e300,
                   .exposed = 1,
                   .sent = 1e300,
                   .intra = 1e300,
                   .inter = 1e300,
                   .ratio = 1e300};
  rows[3].now.counters.errors = 1e18;
  rows[3].now.counters.replaced_calls = 1;
  rows[3].age = 1e12;
  rows[4].state = RankState::silent;
  const FolderSnapshot snapshot{
      .time = 0, .ranks = {}, .skipped = {{"gradwire-x-rank-1.prom", std::string(300, 'x')}}, .problem = ""};
  for (std::size_t width = 1; width < 200; width += width < 90 ? 1 : 17) {
    for (std::size_t height = 1; height < 50; ++height) {
      for (const std::size_t number : {0U, 1U, 3U, 30U}) {
        const std::vector<StyledLine> lines =
            draw(snapshot, std::span(rows).first(number),
                 {.folder = "/a/long/name/of/a/folder", .width = width, .height = height, .keys = true});
        ASSERT_LE(lines.size(), height);
        for (const StyledLine& line : lines) {
          ASSERT_LE(line.text.size(), width) << line.text;
        }
      }
    }
  }
}

TEST(TopDrawing, NoControlCharacterOfAFileReachesTheTerminal) {
  std::vector<RankRow> rows = rows_with({0.4});
  rows[0].now.codec = "\x1b[2J\n";
  rows[0].now.name.first = "\x07";
  const FolderSnapshot snapshot{.time = 0,
                                .ranks = {},
                                .skipped = {{"gradwire-\x1b-rank-.prom",
                                             "line 1: \x9b"
                                             "2J"}},
                                .problem = ""};
  for (const StyledLine& line : draw(snapshot, rows, {.folder = "/\r", .width = 200})) {
    for (const char c : line.text) {
      EXPECT_TRUE(c >= ' ' && c <= '~') << line.text;
    }
  }
}

TEST(TopDrawing, SaysWhatItSkippedAndWhatIsMissing) {
  const FolderSnapshot skipped{
      .time = 0, .ranks = {}, .skipped = {{"gradwire-mpi-rank-1.prom", "line 3: why"}}, .problem = ""};
  EXPECT_THAT(joined(draw(skipped, rows_with({0.4}), {.folder = "/"})),
              HasSubstr("\nskipped gradwire-mpi-rank-1.prom: line 3: why\n"));
  EXPECT_THAT(joined(draw(skipped, {}, {.folder = "/"})), HasSubstr("skipped gradwire-mpi-rank-1.prom"));
  const FolderSnapshot nothing{.time = 0, .ranks = {}, .skipped = {}, .problem = "no rank has written; start the job"};
  EXPECT_THAT(texts(draw(nothing, {}, {.folder = "/tmp", .width = 20, .height = 24, .keys = true})),
              ElementsAre("gradwire top  /tmp", "no rank has written;", "start the job", "q quits"));
}

TEST(TopDrawing, SaysThatTheLinkIsEmulated) {
  std::vector<RankRow> rows = rows_with({0.4, 0.4});
  rows[0].now.emulated_link = "1Gbit/s";
  EXPECT_THAT(joined(draw({}, rows, {.folder = "/f"})),
              StartsWith("gradwire top: 2 of 4 ranks, emulated 1Gbit/s  /f\n"));
}

TEST(TopDrawing, NamesTheJobAndTheOthers) {
  FolderSnapshot snapshot;
  snapshot.job = "resnet";
  snapshot.other_jobs = {{"bert", false}};
  EXPECT_THAT(joined(draw(snapshot, rows_with({0.4, 0.4}), {.folder = "/f", .width = 200})),
              AllOf(StartsWith("gradwire top: resnet, 2 of 4 ranks  /f\n"),
                    HasSubstr("\n1 other job is here: bert (over); --job NAME shows it\n")));
  snapshot.other_jobs = {{"a", true}, {"", false}};
  EXPECT_THAT(texts(draw(snapshot, rows_with({0.4}), {.folder = "/", .width = 200, .height = 24, .keys = true})),
              ::testing::IsSupersetOf({"2 other jobs are here: a, one without a name (over); --job NAME shows one",
                                       "q quits, j shows the next job"}));
}

TEST(TopDrawing, OfAJobThatIsOverSaysSo) {
  std::vector<RankRow> rows = rows_with({0.4, 0.4});
  rows[0].state = rows[1].state = RankState::ended;
  EXPECT_THAT(joined(draw({}, rows, {.folder = "/"})),
              AllOf(HasSubstr("2 ended"), HasSubstr("no rank runs; what stands below is of the whole job")));
}

}  // namespace
}  // namespace gradwire::watch::live
