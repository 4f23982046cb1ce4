// Gives damaged files to the readers of ranks' files: they are read, or refused with an Error, and nothing else
// happens. Sanitizer builds include this test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "tests/cli/page_support.hpp"
#include "tests/cli/timeline/made_up_job.hpp"
#include "tests/support/mutations.hpp"
#include "tests/support/nasty_values.hpp"
#include "tests/support/scratch_folder.hpp"
#include "watch/aggregate.hpp"
#include "watch/event_blocks.hpp"
#include "watch/live/prometheus_text.hpp"
#include "watch/live/view.hpp"
#include "watch/timeline/critical_path.hpp"
#include "watch/timeline/layout.hpp"
#include "watch/timeline/summary.hpp"

namespace gradwire::test {
namespace {

std::string textfile(int rank, int steps) {
  watch::RankTotals totals;
  totals.world_size = 2;
  SessionStatistics statistics;
  statistics.steps = static_cast<std::uint64_t>(steps);
  for (const char* codec : {"int8", "auto: int4 2, int8 1"}) {
    SessionStatistics::Group group;
    group.name = std::string("of \"") + codec + "\"\\\n";
    group.codec = codec;
    group.totals.calls = group.totals.bytes_in = group.totals.bytes_sent = group.totals.bytes_intra = statistics.steps;
    statistics.groups.push_back(group);
  }
  totals.gone = statistics;
  for (int i = 0; i < steps; ++i) {
    totals.seconds[observe::EventKind::step_end].add(0.025);
    totals.steps.add(0.1);
  }
  totals.slow[1] = {.cause = observe::SlowCause::late_compute, .latest = {}, .comparisons = 3, .seconds = 0.1};
  const std::vector<watch::ReplacedCalls> replaced{{"MPI_Allreduce", "too small", 3, 300, 100, 0.5}};
  return watch::to_text(watch::families(totals, {.recorded = 100}, replaced),
                        {{"part", "mpi"}, {"rank", std::to_string(rank)}});
}

// Reads a folder again and again, as `gradwire top` does.
class Watch {
 public:
  void look(const std::string& text) {
    using namespace watch::live;
    FolderSnapshot snapshot;
    snapshot.time = time_ += 5;
    snapshot.ranks.push_back(rank_values(parse_metrics(textfile(1, looks_++)), time_ - 1));
    std::string refused;
    try {
      snapshot.ranks.push_back(rank_values(parse_metrics(text), time_));
    } catch (const Error& error) {
      refused = error.what();
      snapshot.skipped.push_back({"gradwire-mpi-rank-0.prom", refused});
    }
    history_.take(snapshot.ranks);
    std::vector<RankRow> rows = rows_of(snapshot, history_);
    mark_slow(rows);
    for (const std::size_t width : {looks_ % 2 == 0 ? 20U : 130U}) {
      for (const StyledLine& line : draw(snapshot, rows, {.folder = "/tmp/\x1b[2J", .width = width, .height = 6})) {
        ASSERT_LE(line.text.size(), width);
        for (const char c : line.text) {
          ASSERT_TRUE(c >= ' ' && c <= '~') << line.text;
        }
      }
    }
    ++(refused.empty() ? read : skipped);
  }
  int read = 0;
  int skipped = 0;

 private:
  watch::live::RateTracker history_;
  double time_ = 1.7e9;
  int looks_ = 0;
};

TEST(ReadersFuzz, Textfiles) {
  Watch watch;
  const std::vector<std::string> texts{textfile(0, 3), textfile(0, 40)};
  parse_mutations(texts,
                  {"{",
                   "}",
                   "\"",
                   "\\",
                   ",",
                   "=",
                   " ",
                   "\n",
                   "# EOF\n",
                   "#",
                   "NaN",
                   "+Inf",
                   "-1",
                   "1e308",
                   "1e-320",
                   "\xff",
                   std::string(1, '\0'),
                   "rank=\"1048576\"",
                   "rank=\"-1\"",
                   "gradwire_steps_total{part=\"mpi\",rank=\"0\"} ",
                   "\x1b[2J",
                   std::string(500, '9')},
                  seed_of("Textfiles", 181), 2000, [&](const std::string& text) { watch.look(text); });
  EXPECT_GT(watch.read, 100);
  EXPECT_GT(watch.skipped, 300);
}

void report_on(const std::string& text) {
  const page::RankHistory other = planned_history({.ranks = 3, .samples = 5}, 0);
  const page::Job job = page::newest_job({page::parse_history(text, "f"), other}, {"a note"}, "d");
  const auto report = page::to_json(summary_of(job));
  ASSERT_FALSE(page::to_html(report).empty());
}

std::string history_text() {
  page::RankHistory history = planned_history({.ranks = 3, .samples = 6}, 1);
  history.gauges["gradwire_nmse_ratio default"].assign(6, 0.1);
  history.gauges["gradwire_residual_norm_ratio default"].assign(6, 0.2);
  history.replaced.push_back({"MPI_Bcast", "not a sum", 1, 2, 3, 4, 5});
  history.switches.push_back({.step = 3, .from = "int8", .to = "int4", .buckets = 2, .reason = "faster"});
  nlohmann::json root = nlohmann::json::parse(file_text(history));
  root["switches"] = {{{"step", 3}, {"from", "int8"}, {"to", "int4"}, {"buckets", 2}, {"reason", "faster"}}};
  root["replaced"] = {{{"function", "MPI_Bcast"},
                       {"reason", "not a sum"},
                       {"calls", 1},
                       {"bytes_in", 2},
                       {"bytes_sent", 3},
                       {"bytes_dense", 4},
                       {"seconds", 5}}};
  return root.dump();
}

TEST(ReadersFuzz, HistoriesAsTexts) {
  parse_mutations({history_text()},
                  json_pieces({"\"samples\"", "\"time\":[1e300],", "\"rank\":1048575,", "\"world\":1048576,"}),
                  seed_of("HistoriesAsTexts", 182), 1500, report_on);
}

TEST(ReadersFuzz, HistoriesWithOtherValues) {
  std::mt19937 random(seed_of("HistoriesWithOtherValues", 183));
  const nlohmann::json whole = nlohmann::json::parse(history_text());
  int read = 0;
  constexpr int kRounds = 2500;
  for (int round = 0; round < kRounds; ++round) {
    nlohmann::json root = whole;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      damage(root, random);
    }
    try {
      report_on(root.dump());
      ++read;
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a refusal
    }
  }
  EXPECT_GT(read, kRounds / 50);
}

// A file of events of a job with two ranks, in blocks.
struct Block {
  watch::BlockHead head;
  std::string body;
};

std::vector<Block> blocks_of(const watch::timeline::RankLog& log) {
  std::vector<Block> blocks;
  const auto add = [&](std::uint32_t kind, const void* data, std::size_t bytes, std::uint32_t thread = 0) {
    blocks.push_back({{.kind = kind, .thread = thread, .bytes = bytes}, {static_cast<const char*>(data), bytes}});
  };
  watch::EventFileHead head{.rank = log.rank};
  std::string("boot").copy(head.monotonic, sizeof head.monotonic - 1);
  std::string("host").copy(head.host, sizeof head.host - 1);
  add(watch::kFile, &head, sizeof head);
  const watch::EventFileSource source{.id = 1, .rank = log.rank, .world_size = 2};
  std::vector<observe::Event> events;
  for (const watch::timeline::Activity& each : log.activities) {
    events.push_back({.begin = static_cast<std::uint64_t>(each.begin),
                      .bytes = each.bytes,
                      .hop = each.hop,
                      .source = 1,
                      .duration = static_cast<std::uint32_t>((each.end - each.begin) / observe::kTicksOfDuration),
                      .step = each.step,
                      .bucket = each.bucket,
                      .kind = each.kind,
                      .lane = each.lane,
                      .peer = each.peer});
  }
  const std::size_t half = events.size() / 2;
  for (const bool first : {true, false}) {
    const watch::EventFileScale scale{.ticks = first ? 0U : 5'000'000U,
                                      .monotonic = first ? 1U : 5'000'001U,
                                      .realtime = 1'700'000'000'000'000'000 + (first ? 0 : 5'000'000),
                                      .nanoseconds_per_tick = 1,
                                      .recorded = events.size()};
    add(watch::kScale, &scale, sizeof scale);
    if (first) {
      add(watch::kSource, &source, sizeof source);
    }
    add(watch::kEvents, events.data() + (first ? 0 : half), (first ? half : events.size() - half) * sizeof(events[0]),
        1);
  }
  add(watch::kEnd, nullptr, 0);
  return blocks;
}

// Heads state their position.
std::string file_of(std::vector<Block> blocks) {
  std::string text;
  for (Block& block : blocks) {
    block.head.place = text.size();
    block.head.bytes =
        block.head.bytes == 0 || block.head.bytes > block.body.size() ? block.head.bytes : block.body.size();
    text.append(reinterpret_cast<const char*>(&block.head), sizeof block.head);
    text += block.body;
  }
  return text;
}

void overwrite(std::string& text, std::mt19937& random) {
  static constexpr std::array<std::uint64_t, 14> kValues{0,
                                                         1,
                                                         2,
                                                         16,
                                                         0xFF,
                                                         0x7FFF'FFFF,
                                                         0x8000'0000,
                                                         0xFFFF'FFFF,
                                                         0x7FFF'FFFF'FFFF'FFFF,
                                                         0x8000'0000'0000'0000,
                                                         0xFFFF'FFFF'FFFF'FFFF,
                                                         0x7FF0'0000'0000'0000 /* infinity */,
                                                         0x7FF8'0000'0000'0000 /* NaN */,
                                                         1 << 20};
  if (text.empty()) {
    return;
  }
  const std::uint64_t value = random() % 3 == 0 ? random() : kValues[random() % kValues.size()];
  const std::size_t size = std::size_t{1} << (random() % 4);
  const std::size_t at = random() % text.size() / size * size;
  std::memcpy(text.data() + at, &value, std::min(size, text.size() - at));
}

void damage_blocks(std::vector<Block>& blocks, std::mt19937& random) {
  const std::size_t at = random() % blocks.size();
  switch (random() % 8) {
    case 0: blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(at)); break;
    case 1:
      blocks.insert(blocks.begin() + static_cast<std::ptrdiff_t>(random() % blocks.size()), Block(blocks[at]));
      break;
    case 2: std::swap(blocks[at], blocks[random() % blocks.size()]); break;
    case 3: blocks[at].head.thread = random(); break;
    default: overwrite(blocks[at].body, random);
  }
}

// Does the same as `gradwire trace`, except for the file that needs protobuf.
std::size_t make_timeline(const std::filesystem::path& folder) {
  using namespace watch::timeline;
  Read read{.recording = read_recording(folder), .matching = {}, .alignment = {}, .folder = folder.string()};
  read.matching = match(read.recording);
  read.alignment = align(read.recording, read.matching);
  const std::vector<StreamPaths> paths = critical_paths(read.recording, read.matching);
  const Timeline timeline = lay_out(read.recording, read.matching);
  std::ostringstream out;
  if (!paths.empty()) {
    write_summary(read, paths, out);
    write_summary_json(read, paths, out);
  }
  return timeline.tracks.empty() ? 0 : read.matching.messages.size();
}

TEST(ReadersFuzz, Traces) {
  JobFacts facts(2);
  facts.steps = 2;
  facts.buckets = 2;
  facts.lanes = 2;
  const watch::timeline::Recording job = MadeUpJob(facts).recording();
  const std::vector<Block> whole = blocks_of(job.ranks[0]);
  const ScratchFolder folder;
  const auto write = [&](int rank, const std::string& text) {
    std::ofstream(folder.file("gradwire-library-rank-" + std::to_string(rank) + ".events"), std::ios::binary) << text;
  };
  write(0, file_of(whole));
  write(1, file_of(blocks_of(job.ranks[1])));
  ASSERT_GT(make_timeline(folder.path()), 4U);
  std::mt19937 random(seed_of("Traces", 184));
  std::size_t matched = 0;
  for (int round = 0; round < 1500; ++round) {
    std::vector<Block> blocks = whole;
    for (int edits = 1 + static_cast<int>(random() % 4); edits > 0 && !blocks.empty(); --edits) {
      damage_blocks(blocks, random);
    }
    std::string text = file_of(blocks);
    if (round % 8 == 0) {
      overwrite(text, random);
    }
    if (round % 16 == 1) {
      text.resize(text.size() * (random() % 100) / 100);
    }
    write(0, text);
    try {
      matched += make_timeline(folder.path()) > 0 ? 1 : 0;
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a refusal
    } catch (const std::exception& error) {
      ADD_FAILURE() << "round " << round << " threw " << error.what();
    }
  }
  EXPECT_GT(matched, 400U);
}

}  // namespace
}  // namespace gradwire::test
