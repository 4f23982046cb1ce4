// The lines of `gradwire top`.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/median.hpp"
#include "base/text.hpp"
#include "watch/live/rank_table.hpp"
#include "watch/live/view.hpp"

namespace gradwire::watch::live {
namespace {

// Returns the ranks of rows in this state. A rank whose job and whose own session write has two rows.
std::set<int> ranks_in(std::span<const RankRow> rows, RankState state) {
  std::set<int> ranks;
  for (const RankRow& row : rows) {
    if (row.state == state) {
      ranks.insert(row.now.name.second);
    }
  }
  return ranks;
}

bool is_live(const RankRow& row) { return row.state != RankState::ended && row.state != RankState::silent; }

// "gradwire top: resnet, 4 of 8 ranks, 1 slow, 2 errors  /folder"
std::string title(std::span<const RankRow> rows, const std::string& job, const std::string& folder) {
  std::set<int> ranks;
  int world = 0;
  double errors = 0;
  std::string link;
  for (const RankRow& row : rows) {
    link = row.now.emulated_link.empty() ? link : row.now.emulated_link;
    ranks.insert(row.now.name.second);
    world = std::max(world, row.now.world_size);
    errors += row.now.counters.errors;
  }
  std::string text = "gradwire top: " + (job.empty() ? "" : job + ", ") + std::to_string(ranks.size()) + " of " +
                     std::to_string(world) + (world == 1 ? " rank" : " ranks") +
                     (link.empty() ? "" : ", emulated " + link);
  for (const RankState state : {RankState::slow, RankState::stalled, RankState::silent, RankState::ended}) {
    if (const std::size_t number = ranks_in(rows, state).size()) {
      text += ", " + std::to_string(number) + " " + state_name(state);
    }
  }
  if (errors > 0) {
    text += ", " + whole_number(errors) + (errors == 1 ? " error" : " errors");
  }
  return text + "  " + folder;
}

// Totals of the ranks that run: "12.3 steps/s, exposed 31%, 240MB/s sent, ratio 3.9, over the last 5s"
std::string totals(std::span<const RankRow> rows) {
  std::vector<double> steps;
  double exposed = 0;
  std::size_t exposing = 0;
  double sent = 0;
  double uncompressed = 0;
  double with_ratio = 0;
  double seconds = 0;
  for (const RankRow& row : rows) {
    if (!is_live(row)) {
      continue;
    }
    if (row.rates.steps) {
      steps.push_back(*row.rates.steps);
    }
    exposed += row.rates.exposed.value_or(0);
    exposing += row.rates.exposed ? 1 : 0;
    sent += row.rates.sent.value_or(0);
    if (row.rates.sent && row.rates.ratio) {
      with_ratio += *row.rates.sent;
      uncompressed += *row.rates.sent * *row.rates.ratio;
    }
    seconds = std::max(seconds, row.rates.seconds);
  }
  if (std::none_of(rows.begin(), rows.end(), is_live)) {
    return "no rank runs; what stands below is of the whole job";
  }
  std::string text;
  if (!steps.empty()) {
    text += in_short(median(steps)) + " steps/s, ";
  }
  text += exposing > 0 ? "exposed " + percent(exposed / static_cast<double>(exposing)) + ", " : "";
  text += sent > 0 ? bytes_in_short(sent) + "/s sent, " : "";
  text += with_ratio > 0 ? "ratio " + in_short(uncompressed / with_ratio) + ", " : "";
  return text + (seconds > 0 ? "over the last " + time_in_short(std::round(seconds)) : "since the start");
}

std::string names(const std::set<int>& ranks) {
  constexpr std::size_t kNamed = 6;
  std::string text = ranks.size() == 1 ? "Rank " : "Ranks ";
  std::size_t named = 0;
  for (const int rank : ranks) {
    if (named == kNamed) {
      return text + " and " + std::to_string(ranks.size() - named) + " more";
    }
    text += (named++ == 0 ? "" : ", ") + std::to_string(rank);
  }
  return text;
}

// "1 other job is here: resnet (over); --job NAME shows it"
std::string others(const std::vector<OtherJob>& jobs) {
  constexpr std::size_t kNamed = 4;
  std::string text =
      std::to_string(jobs.size()) + (jobs.size() == 1 ? " other job is here: " : " other jobs are here: ");
  for (std::size_t i = 0; i < std::min(jobs.size(), kNamed); ++i) {
    text += (i == 0 ? "" : ", ") + (jobs[i].name.empty() ? "one without a name" : jobs[i].name) +
            (jobs[i].runs ? "" : " (over)");
  }
  text += jobs.size() > kNamed ? " and " + std::to_string(jobs.size() - kNamed) + " more" : "";
  return text + "; --job NAME shows " + (jobs.size() == 1 ? "it" : "one");
}

std::vector<std::string> notes(const FolderSnapshot& snapshot, std::span<const RankRow> rows) {
  std::vector<std::string> notes;
  const auto add = [&](RankState state, const char* one, const char* many) {
    if (const std::set<int> ranks = ranks_in(rows, state); !ranks.empty()) {
      notes.push_back(names(ranks) + (ranks.size() == 1 ? one : many));
    }
  };
  add(RankState::slow, " is slow: the others wait for it.", " are slow: the others wait for them.");
  add(RankState::silent, " is silent: killed or stopped, or its host hangs or cannot write.",
      " are silent: killed or stopped, or their hosts hang or cannot write.");
  add(RankState::stalled, " is stalled: it is alive, and no step ends.", " are stalled: alive, and no step ends.");
  if (!snapshot.problem.empty()) {
    notes.push_back(snapshot.problem);
  }
  if (!snapshot.other_jobs.empty()) {
    notes.push_back(others(snapshot.other_jobs));
  }
  for (const SkippedFile& file : snapshot.skipped) {
    notes.push_back("skipped " + file.name + ": " + file.reason);
  }
  return notes;
}

// Explains the columns that a reader cannot guess.
std::string legend(std::span<const RankRow> rows) {
  const auto any = [&](const auto& has) { return std::any_of(rows.begin(), rows.end(), has); };
  const bool steps = any([](const RankRow& row) { return row.rates.steps.has_value(); });
  std::string text = std::string("exposed: share of the time inside ") + (steps ? "finish()" : "the calls");
  if (any([](const RankRow& row) { return row.rates.ratio.has_value(); })) {
    text += "; ratio: bytes uncompressed / sent";
  }
  if (any([](const RankRow& row) { return !row.now.codec.empty(); })) {
    text += "; codec: all but exact(+zstd) are lossy";
  }
  return text + "; age: of the rank's file";
}

// Breaks the text into lines, at blanks where there are any.
std::vector<std::string> wrapped(std::string text, std::size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    std::size_t at = text.rfind(' ', width);
    at = at == std::string::npos || at == 0 ? width : at;
    lines.push_back(text.substr(0, at));
    text.erase(0, text[at] == ' ' ? at + 1 : at);
  }
  lines.push_back(text);
  return lines;
}

// Makes a line. Texts come from files of others, so control characters in them must not reach the terminal.
StyledLine line_of(std::string text, std::size_t width, Emphasis emphasis = Emphasis::none) {
  text.resize(std::min(text.size(), width));
  return {text::printable_ascii(text), emphasis};
}

Emphasis emphasis_of(const RankRow& row) {
  if (row.state == RankState::ended) {
    return Emphasis::weak;
  }
  return row.state != RankState::running || row.now.counters.errors > 0 ? Emphasis::strong : Emphasis::none;
}

// The slowest first: ranks that others wait for, and among the rest those that wait least.
std::vector<RankRow> most_urgent(std::span<const RankRow> rows, std::size_t number) {
  static constexpr std::array<int, 5> kUrgency{3, 0, 2, 1, 4};  // by state
  std::vector<RankRow> order(rows.begin(), rows.end());
  std::stable_sort(order.begin(), order.end(), [](const RankRow& a, const RankRow& b) {
    const auto key = [](const RankRow& row) {
      return std::pair(kUrgency[static_cast<std::size_t>(row.state)], row.rates.exposed.value_or(2));
    };
    return key(a) < key(b);
  });
  order.erase(order.begin() + static_cast<std::ptrdiff_t>(std::min(number, order.size())), order.end());
  return order;
}

// Adds head, rows, and the number of rows without a place. `height` 0: no limit.
void add_table(std::vector<StyledLine>& lines, std::span<const RankRow> rows, std::size_t width, std::size_t height) {
  std::vector<RankRow> shown(rows.begin(), rows.end());
  if (height > 0 && rows.size() + 1 > height) {
    shown = most_urgent(rows, height > 2 ? height - 2 : 0);
  }
  const RankTable table = table_of(shown, width);
  std::string head = row_text(table, 0);
  lines.push_back(line_of(std::move(head), width, Emphasis::head));
  for (std::size_t i = 0; i < shown.size(); ++i) {
    lines.push_back(line_of(row_text(table, i + 1), width, emphasis_of(shown[i])));
  }
  if (shown.size() < rows.size()) {
    lines.push_back(line_of("and " + std::to_string(rows.size() - shown.size()) + " more", width));
  }
}

}  // namespace

std::vector<StyledLine> draw(const FolderSnapshot& snapshot, std::span<const RankRow> rows,
                             const DrawOptions& options) {
  const std::size_t width = std::max<std::size_t>(options.width, 1);
  std::vector<StyledLine> below;
  for (const std::string& note : notes(snapshot, rows)) {
    for (std::string& text : wrapped(note, width)) {
      below.push_back(line_of(std::move(text), width));
    }
  }
  if (options.height > 0) {
    below.resize(std::min(below.size(), std::max<std::size_t>(options.height / 4, 1)));
  }
  if (options.keys) {
    below.push_back(
        line_of(snapshot.other_jobs.empty() ? "q quits" : "q quits, j shows the next job", width, Emphasis::weak));
  }
  std::vector<StyledLine> lines;
  if (rows.empty()) {
    lines.push_back(line_of("gradwire top  " + options.folder, width));
  } else {
    lines.push_back(line_of(title(rows, snapshot.job, options.folder), width));
    lines.push_back(line_of(totals(rows), width));
    const std::size_t others = lines.size() + below.size();
    const std::size_t left = options.height > others ? options.height - others : 1;
    add_table(lines, rows, width, options.height == 0 ? 0 : left);
    const std::vector<std::string> explained = wrapped(legend(rows), width);
    if (options.height == 0 || lines.size() + explained.size() + below.size() <= options.height) {
      for (const std::string& text : explained) {
        lines.push_back(line_of(text, width, Emphasis::weak));
      }
    }
  }
  lines.insert(lines.end(), below.begin(), below.end());
  if (options.height > 0) {
    lines.resize(std::min(lines.size(), options.height));
  }
  return lines;
}

}  // namespace gradwire::watch::live
