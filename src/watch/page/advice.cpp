// Sentences about slow ranks, and advice from the numbers. Each sentence has a condition beside it, and is written only
// where that holds.
#include <algorithm>
#include <cmath>
#include <functional>

#include "base/emulated_link.hpp"
#include "base/median.hpp"
#include "observe/late_ranks.hpp"
#include "watch/page/summary.hpp"
#include "watch/page/units.hpp"

namespace gradwire::watch::page {
namespace {

constexpr std::size_t kMostNamed = 4;  // most ranks named in a sentence
constexpr double kFewSteps = 20;       // fewer steps say little
constexpr double kHidden = 0.05;       // below this share of a step communication costs nothing
constexpr double kMuch = 0.25;         // above this share of a step it costs much
constexpr double kUncompressed = 1.5;  // a lower ratio is as good as none
constexpr double kLargeError = 0.5;    // a large relative error
constexpr double kSlowEnough = 0.2;    // share of the time in which ranks agreed that a rank is slow
constexpr double kMostPassed = 0.5;    // share of the bytes

std::string percent(double share) { return shown(Unit::share, share); }
std::string time(double seconds) { return shown(Unit::seconds, seconds); }

// Whether all ranks are there: only a comparison of all shows which ranks wait for which.
bool has_all_ranks(const Summary& summary) { return static_cast<int>(summary.ranks.size()) >= summary.world; }

// The link that is emulated, "1Gbit/s, 50us"; empty: none is.
std::string emulated_link(const Summary& summary) { return std::string(emulated_link_in(summary.transport)); }

// Whether ranks have links between them: on one host they use its memory, except with tcp or an emulated link.
bool has_link(const Summary& summary) {
  return summary.hosts.size() > 1 || summary.transport == "tcp" || !emulated_link(summary).empty();
}

// The median of all ranks except one.
double median_of_others(const Summary& summary, const RankSummary& one,
                        const std::function<double(const RankSummary&)>& value) {
  std::vector<double> values;
  for (const RankSummary& rank : summary.ranks) {
    if (rank.rank != one.rank && value(rank) >= 0) {
      values.push_back(value(rank));
    }
  }
  return median(std::move(values));
}

double sending_of_others(const Summary& summary, const RankSummary& one) {
  return median_of_others(summary, one, [](const RankSummary& rank) { return rank.sending_rate; });
}

double computing_of_others(const Summary& summary, const RankSummary& one) {
  return median_of_others(summary, one, [](const RankSummary& rank) { return rank.split.compute; });
}

double encoding_of_others(const Summary& summary, const RankSummary& one) {
  return median_of_others(summary, one, [](const RankSummary& rank) { return rank.split.encode + rank.split.reduce; });
}

// The cause for each rank, by the rule of ranks that compare themselves, applied to means over the whole job. All ranks
// reduce the same tensors, so their bytes are taken as one unit. Without steps a rank's computing time is not known.
std::vector<std::string> causes_of(const Summary& summary) {
  std::vector<observe::RankSeen> seen;
  for (const RankSummary& rank : summary.ranks) {
    const Split& split = rank.split;
    seen.push_back({.steps = rank.steps,
                    .step_seconds = split.step,
                    .wait_seconds = split.exposed,
                    .compute_seconds = split.compute,
                    .bytes_in = 1,
                    .codec_seconds_per_byte = split.encode + split.reduce + split.decode});
  }
  std::vector<std::string> causes;
  for (const observe::Diagnosis& found : observe::diagnose(seen)) {
    const bool is_known = summary.has_steps && found.cause != observe::SlowCause::none;
    causes.emplace_back(is_known ? to_string(found.cause) : "unknown");
  }
  return causes;
}

std::string because(const Summary& summary, const RankSummary& rank) {
  const std::string computes =
      "it computes " + time(rank.split.compute) + " of a step, others " + time(computing_of_others(summary, rank));
  const double others = sending_of_others(summary, rank);
  const bool rates = rank.sending_rate >= 0 && rank.sending_rate < others;
  const std::string link =
      rates ? "gives " + shown(Unit::bits, rank.sending_rate) + " where others give " + shown(Unit::bits, others)
            : "is slower than the others'";
  if (rank.cause == "late_compute") {
    return ", which computes longer: " + computes;
  }
  if (rank.cause == "slow_link_out") {
    return ", whose link " + link;
  }
  if (rank.cause == "slow_link_in") {
    return ": messages of all others reach it late, so look at the link into " + rank.host;
  }
  if (rank.cause == "slow_encoding") {
    return ", which encodes slowly: " + time(rank.split.encode + rank.split.reduce) + " of a step, others " +
           time(encoding_of_others(summary, rank));
  }
  if (rank.cause == "cores_shared") {
    return ": its threads wait for cores that something else uses on " + rank.host;
  }
  if (rank.cause == "paused") {
    return ", which stood still for a time: stopped, swapped out or asleep";
  }
  return "; the numbers do not say why";
}

std::string fix(const std::string& cause) {
  if (cause == "late_compute") {
    return " Give it less to compute, or look at its input and its processor.";
  }
  if (cause == "cores_shared") {
    return " Bind ranks to cores of their own.";
  }
  return "";
}

void add_slow_ranks(const Summary& summary, std::vector<std::string>& sentences) {
  std::vector<const RankSummary*> slow;
  for (const RankSummary& rank : summary.ranks) {
    if (rank.is_slow()) {
      slow.push_back(&rank);
    }
  }
  std::stable_sort(slow.begin(), slow.end(), [](const RankSummary* a, const RankSummary* b) {
    return std::max(a->waited_for, 0.0) + a->slow_share > std::max(b->waited_for, 0.0) + b->slow_share;
  });
  const std::string unit = summary.has_steps ? "a step" : "the time";
  for (std::size_t i = 0; i < std::min(slow.size(), kMostNamed); ++i) {
    const RankSummary& rank = *slow[i];
    const std::string name = "rank " + std::to_string(rank.rank);
    const std::string begin = rank.waited_for >= observe::kSlowShare / 2
                                  ? "Ranks wait " + percent(rank.waited_for) + " of " + unit + " for " + name
                                  : "Ranks waited for " + name + " during " + percent(rank.slow_share) + " of the job";
    sentences.push_back(begin + because(summary, rank) + "." + fix(rank.cause));
  }
  if (slow.size() > kMostNamed) {
    sentences.push_back(std::to_string(slow.size() - kMostNamed) +
                        " more ranks are slow; the table of ranks marks them.");
  }
}

void add_lost_ranks(const Summary& summary, std::vector<std::string>& sentences) {
  std::size_t named = 0;
  for (const RankSummary& rank : summary.ranks) {
    if (named == kMostNamed) {
      return;
    }
    const double before = summary.seconds - rank.last_seen;
    if (rank.errors > 0) {
      sentences.push_back("Rank " + std::to_string(rank.rank) + " on " + rank.host + " gave up with an error at " +
                          time(rank.last_seen) + "; its log says which.");
      ++named;
    } else if (rank.state == "silent") {
      sentences.push_back("Rank " + std::to_string(rank.rank) + " on " + rank.host + " fell silent " + time(before) +
                          " before the last rank did: it was killed, or its host failed.");
      ++named;
    }
  }
}

void add_communication(const Summary& summary, std::vector<std::string>& sentences) {
  const Split& split = summary.split;
  const double exposed = summary.exposed_share();
  const bool anybody_slow =
      std::any_of(summary.ranks.begin(), summary.ranks.end(), [](const RankSummary& rank) { return rank.is_slow(); });
  const double coding = split.encode + split.reduce + split.decode;
  if (exposed < kHidden) {
    sentences.push_back("Communication is hidden behind computing: " + percent(exposed) +
                        " of a step waits for it. A stronger codec would gain nothing.");
  } else if (anybody_slow) {
    return;  // the sentences about slow ranks come first
  } else if (exposed >= kMuch && summary.ratio() < kUncompressed && summary.bytes_sent > 0) {
    sentences.push_back("Communication that nothing hides takes " + percent(exposed) +
                        " of a step, and gradients travel nearly uncompressed (ratio " +
                        shown(Unit::factor, summary.ratio()) +
                        "). int8 sends a quarter, with loss: try it, or codec = \"auto\".");
  } else if (exposed >= kMuch && coding > 2 * split.wait) {
    sentences.push_back("Encoding, summing and decoding take " + time(coding) + " of a step and waiting " +
                        time(split.wait) +
                        ": the link is not what holds this job. A cheaper codec (bf16, exact) or more cores may be "
                        "faster.");
  } else if (exposed >= kMuch && split.wait > 2 * coding) {
    sentences.push_back(
        "Waiting for messages takes " + time(split.wait) + " of a step and coding " + time(coding) + ": " +
        (has_link(summary)
             ? (emulated_link(summary).empty() ? "the link holds this job."
                                               : "the emulated link (" + emulated_link(summary) + ") holds this job.") +
                   " A stronger codec (int4, topk) or larger batches would help."
             : "all ranks share a host, so it is its cores and its memory that hold this job, and no "
               "link. Fewer ranks or larger batches may help."));
  }
}

void add_health(const Summary& summary, std::vector<std::string>& sentences) {
  if (summary.nonfinite_frames > 0) {
    const auto first = std::find_if(summary.nonfinite.begin(), summary.nonfinite.end(), [](double n) { return n > 0; });
    const auto span = static_cast<std::size_t>(first - summary.nonfinite.begin());
    sentences.push_back(shown(Unit::count, summary.nonfinite_frames) + " frames had NaN or Inf inside" +
                        (span < summary.times.size()
                             ? ", the first by step " + shown(Unit::count, summary.step_numbers[span])
                             : std::string()) +
                        ". Nonfinite::skip leaves such steps out.");
  }
  for (const auto& [name, band] : summary.gauges) {
    const auto last = std::find_if(band.median.rbegin(), band.median.rend(), [](double v) { return std::isfinite(v); });
    if (last != band.median.rend() && name.starts_with("gradwire_relative_error") && *last > kLargeError) {
      sentences.push_back("The relative error of " + name.substr(name.find(' ') + 1) + " is " +
                          shown(Unit::factor, *last) +
                          ": more than half of the sum is lost in a step. Without error feedback use more bits.");
    }
  }
}

void add_passed(const Summary& summary, std::vector<std::string>& sentences) {
  double all = 0;
  double passed = 0;
  for (const GroupRow& group : summary.groups) {  // a session's gradients are no calls that were passed on
    all += group.bytes_in;
  }
  for (const ReplacedRow& row : summary.replaced) {
    all += row.bytes_in;
    passed += row.reason.empty() ? 0 : row.bytes_in;
  }
  const auto most = std::find_if(summary.replaced.begin(), summary.replaced.end(),
                                 [](const ReplacedRow& row) { return !row.reason.empty(); });
  if (all > 0 && passed > kMostPassed * all && most != summary.replaced.end()) {
    sentences.push_back(percent(passed / all) +
                        " of the bytes of this job's calls were passed on uncompressed; most of "
                        "them in " +
                        most->function + ": " + most->reason + ".");
  }
}

}  // namespace

void find_slow_ranks(Summary& summary) {
  if (!has_all_ranks(summary)) {
    for (RankSummary& rank : summary.ranks) {
      rank.cause = "";
    }
    return;
  }
  std::vector<observe::RankFromOutside> ranks;
  for (const RankSummary& rank : summary.ranks) {
    observe::RankFromOutside& each = ranks.emplace_back();
    each.exposed = rank.exposed_share;
    each.agreed = rank.is_judged ? std::optional(!rank.cause.empty()) : std::nullopt;
  }
  const std::vector<observe::WaitedFor> waits = observe::waited_for(ranks);
  const std::vector<std::string> causes = causes_of(summary);
  // For other jobs, such as those with tables only, no number tells waits for other ranks apart.
  const bool shows_waits = summary.has_steps || !summary.replaced.empty();
  for (std::size_t i = 0; i < waits.size(); ++i) {
    RankSummary& rank = summary.ranks[i];
    rank.waited_for = waits[i].share;
    const bool is_enough = rank.slow_share >= kSlowEnough || rank.waited_for >= observe::kSlowShare;
    if (!waits[i].is_slow || (rank.is_judged ? !is_enough : !shows_waits)) {
      rank.cause = "";
    } else if (!rank.is_judged) {
      rank.cause = causes[i];
    }
  }
}

std::vector<std::string> advice(const Summary& summary) {
  std::vector<std::string> sentences;
  add_lost_ranks(summary, sentences);
  if (!has_all_ranks(summary)) {
    sentences.push_back(std::to_string(summary.ranks.size()) + " of " + std::to_string(summary.world) +
                        " ranks left a history, so ranks are not compared, and nothing is said of the link.");
  } else if (summary.world > 1) {
    add_slow_ranks(summary, sentences);
    if (summary.has_steps) {
      add_communication(summary, sentences);
    }
  }
  add_health(summary, sentences);
  add_passed(summary, sentences);
  if (summary.world == 1) {
    sentences.emplace_back("The job has one rank, which sends nothing.");
  } else if (summary.has_steps && summary.steps < kFewSteps) {
    sentences.push_back("These are " + shown(Unit::count, summary.steps) +
                        " steps: means of so few say little, since the first ones are slower.");
  }
  return sentences;
}

}  // namespace gradwire::watch::page
