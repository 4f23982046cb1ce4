#include "observe/slow_ranks.hpp"

#include <algorithm>
#include <cmath>

#include "base/median.hpp"
#include "base/units.hpp"

namespace gradwire::observe {
namespace {

constexpr double kExplains = 0.5;      // a figure that explains this share of the wait is the cause
constexpr double kLinkExplains = 0.2;  // the share for links among three ranks and more, where other frames hide part
constexpr double kSpread = 3;          // a sender reaches its last receiver so many times later than the median one
constexpr double kLeastPause = 0.1;    // seconds
constexpr double kEncodingOfCompute = 0.7;  // encoding inside the job's calls counts as computing too

constexpr std::string_view kNames[] = {"none",          "late_compute", "slow_link_out", "slow_link_in",
                                       "slow_encoding", "cores_shared", "paused"};

double stream(const PeerWait& wait) { return std::max(0.0, wait.direct - wait.entry); }

/// For each rank the median of all other ranks.
class Others {
 public:
  template <typename Value>
  Others(std::span<const RankSeen> ranks, Value&& value) {
    for (const RankSeen& rank : ranks) {
      values_.push_back(value(rank));
    }
    sorted_ = values_;
    std::sort(sorted_.begin(), sorted_.end());
  }
  [[nodiscard]] double own(std::size_t self) const { return values_[self]; }
  [[nodiscard]] double middle(std::size_t self) const {
    const std::size_t at = (sorted_.size() - 2) / 2;  // there are at least two ranks
    return sorted_[values_[self] <= sorted_[at] ? at + 1 : at];
  }

 private:
  std::vector<double> values_;
  std::vector<double> sorted_;
};

/// The waits that each rank's receivers report about it. Most report none, since each names few ranks.
class Told {
 public:
  explicit Told(std::span<const RankSeen> ranks) : of_(ranks.size()) {
    for (std::size_t receiver = 0; receiver < ranks.size(); ++receiver) {
      for (const PeerWait& peer : ranks[receiver].peers) {
        if (peer.rank >= 0 && static_cast<std::size_t>(peer.rank) < of_.size() &&
            static_cast<std::size_t>(peer.rank) != receiver) {
          of_[static_cast<std::size_t>(peer.rank)].push_back(peer);
        }
      }
    }
  }
  /// The median of `value`, which is not negative, over all receivers.
  template <typename Value>
  [[nodiscard]] double middle(std::size_t sender, Value&& value) const {
    std::vector<double> values;
    for (const PeerWait& wait : of_[sender]) {
      values.push_back(value(wait));
    }
    const std::size_t silent = of_.size() - 1 - std::min(values.size(), of_.size() - 1);
    const std::size_t at = (of_.size() - 2) / 2;
    if (at < silent) {
      return 0;
    }
    const auto place = values.begin() + static_cast<std::ptrdiff_t>(at - silent);
    std::nth_element(values.begin(), place, values.end());
    return *place;
  }
  [[nodiscard]] double last_arrivals(std::size_t sender) const {
    double sum = 0;
    for (const PeerWait& wait : of_[sender]) {
      sum += wait.last;
    }
    return sum / static_cast<double>(of_.size() - 1);
  }

 private:
  std::vector<std::vector<PeerWait>> of_;  // by sender
};

// A wait for a frame has a part of its sender, which all receivers of that sender see, and a part of its receiver,
// which all senders to it see. A rank's result is late where the frames for it came late; only the rest is the rank's
// own fault.
struct Parts {
  // Waits for this rank as its median receiver saw them.
  double out = 0;      // for all frames of its own values
  double streams = 0;  // for these except the first one of a bucket
  double results = 0;
  // Parts that are this rank's own fault.
  double streams_out = 0;  // the link from it
  double streams_in = 0;   // the link to it
  double entry = 0;        // it enters a bucket late
  double indirect = 0;     // its results
  double delayed = 0;      // not its fault: one other rank made it late
};

std::vector<Parts> split(std::span<const RankSeen> ranks, const Told& told) {
  std::vector<Parts> parts(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    parts[i].out = told.middle(i, [](const PeerWait& wait) { return wait.direct; });
    parts[i].streams = told.middle(i, stream);
    parts[i].results = told.middle(i, [](const PeerWait& wait) { return wait.indirect; });
  }
  std::vector<double> streams;
  for (const RankSeen& rank : ranks) {
    streams.push_back(rank.typical_stream + rank.typical_indirect);
  }
  const double typical = lower_median(streams);
  const bool two = ranks.size() == 2;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    // With two ranks the link out of one and the link into the other cannot be told apart.
    parts[i].streams_in = !two ? std::max(0.0, ranks[i].typical_stream + ranks[i].typical_indirect - typical) : 0;
    double forgiven = 0;
    double knocked = 0;
    for (const PeerWait& peer : ranks[i].peers) {
      if (peer.rank >= 0 && static_cast<std::size_t>(peer.rank) < parts.size()) {
        const Parts& theirs = parts[static_cast<std::size_t>(peer.rank)];
        const double usual = two ? 0 : ranks[i].typical_indirect;
        forgiven = std::max(forgiven, two ? 0 : std::min(stream(peer), kSpread * theirs.streams));
        knocked = std::max(knocked, std::min(peer.indirect - usual, kSpread * theirs.results));
      }
    }
    // If one rank's results made this rank end its step late, it also began the next one late; that is subtracted.
    parts[i].entry = std::max(0.0, parts[i].out - parts[i].streams - knocked);
    parts[i].delayed = two ? 0 : std::max(forgiven, knocked);
    const double results = std::max(0.0, parts[i].results - ranks[i].typical_stream);
    parts[i].streams_out = std::max(0.0, parts[i].streams + results - typical);
    parts[i].indirect = std::max(0.0, parts[i].results - forgiven);
  }
  return parts;
}

struct Figure {
  double own;
  double others;
  [[nodiscard]] double excess() const { return own - others; }
};

template <typename Value>
Figure figure(std::span<const RankSeen> ranks, std::size_t self, Value&& value) {
  const Others others(ranks, value);
  return {others.own(self), others.middle(self)};
}

// Finds the cause for a slow rank. `step_seconds`: the median rank's.
void find_cause(Diagnosis& found, std::span<const RankSeen> ranks, std::size_t self, const Parts& parts, double share,
                double step_seconds) {
  const RankSeen& rank = ranks[self];
  const double enough = kExplains * found.wait_seconds;
  const auto is = [&](SlowCause cause, const Figure& shown) {
    found.cause = cause;
    found.own = shown.own;
    found.others = shown.others;
  };
  // A rank that waits for frames gives its core away; time without a core while it waits harms no one.
  const Figure delayed =
      figure(ranks, self, [](const RankSeen& r) { return std::max(0.0, r.delayed_seconds - r.idle_seconds); });
  const double steps = std::max(1.0, rank.steps);
  const Figure gap = figure(ranks, self, [](const RankSeen& r) { return r.longest_gap; });
  // Time without a core is part of the gap, so it is subtracted.
  const double stopped = gap.excess() - std::max(0.0, delayed.excess()) * steps;
  if (stopped >= kLeastPause && stopped >= enough * steps) {
    return is(SlowCause::paused, gap);
  }
  if (delayed.excess() >= enough) {
    return is(SlowCause::cores_shared, delayed);
  }
  const Figure codec = figure(ranks, self, [&](const RankSeen& r) { return r.codec_seconds_per_byte * rank.bytes_in; });
  const Figure compute = figure(ranks, self, [](const RankSeen& r) { return r.compute_seconds; });
  const bool encodes = codec.excess() >= enough && codec.excess() >= kEncodingOfCompute * compute.excess();
  if (encodes || compute.excess() >= enough) {
    // Both figures include time without a core.
    if (delayed.excess() >= kExplains * (encodes ? codec : compute).excess()) {
      return is(SlowCause::cores_shared, delayed);
    }
    return encodes ? is(SlowCause::slow_encoding, codec) : is(SlowCause::late_compute, compute);
  }
  if (parts.delayed >= found.wait_seconds) {
    return;  // it is late only because others made it late
  }
  // A rank behind a slow link is idle itself. Without this check a rank that has no core when a frame arrives, or works
  // longer than others for any reason, would be reported as having a slow link.
  const double waits = std::min(found.share * step_seconds, rank.idle_seconds);
  const Figure any = figure(ranks, self, [](const RankSeen& r) { return r.delayed_seconds; });
  const double cores = any.own + any.others + std::max(0.0, codec.excess()) + std::max(0.0, compute.excess());
  if (waits - cores <= share * step_seconds) {
    return;
  }
  if (ranks.size() > 2 && std::max(parts.streams_in, parts.streams_out) < kLinkExplains * found.wait_seconds) {
    return;  // no link explains the wait either
  }
  if (parts.streams_in > parts.streams_out) {
    return is(SlowCause::slow_link_in,
              figure(ranks, self, [](const RankSeen& r) { return r.typical_stream + r.typical_indirect; }));
  }
  is(SlowCause::slow_link_out, {found.wait_seconds, 0});
}

}  // namespace

std::string_view to_string(SlowCause cause) noexcept { return kNames[static_cast<std::size_t>(cause)]; }

std::vector<Diagnosis> diagnose(std::span<const RankSeen> ranks, double share) {
  std::vector<Diagnosis> found(ranks.size());
  if (ranks.size() < 2) {
    return found;
  }
  const Told told(ranks);
  const std::vector<Parts> parts = split(ranks, told);
  const Others exposed(ranks, [](const RankSeen& rank) { return rank.wait_seconds; });
  const Others idle(ranks, [](const RankSeen& rank) { return rank.idle_seconds; });
  const Others compute(ranks, [](const RankSeen& rank) { return rank.compute_seconds; });
  std::vector<double> waits;
  std::vector<double> steps;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    // The transport's own sums have no frames to tell apart: a rank that waits less because it computes longer is late.
    const double late = std::max(0.0, std::min(exposed.middle(i) - exposed.own(i), compute.own(i) - compute.middle(i)));
    // Frames and results of other lanes may be missing at the same time, and waits that computing hides delay no one.
    const double by_frames = std::min(parts[i].entry + parts[i].streams + parts[i].indirect, idle.middle(i));
    found[i].wait_seconds = std::max(late, std::min(by_frames, exposed.middle(i)));
    found[i].last_arrivals = told.last_arrivals(i);
    waits.push_back(found[i].wait_seconds);
    steps.push_back(ranks[i].step_seconds);
  }
  const double common = lower_median(waits);
  const double step = lower_median(steps);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    found[i].share = step > 0 ? std::max(0.0, found[i].wait_seconds - common) / step : 0;
    if (found[i].share > share) {
      find_cause(found[i], ranks, i, parts[i], share, step);
    }
  }
  return found;
}

SlowCause SlowWatch::cause(int rank) const noexcept {
  return rank >= 0 && static_cast<std::size_t>(rank) < ranks_.size() ? ranks_[static_cast<std::size_t>(rank)].cause
                                                                     : SlowCause::none;
}

namespace {

bool doubtful(SlowCause cause) {
  return cause == SlowCause::cores_shared || cause == SlowCause::slow_link_in || cause == SlowCause::slow_link_out;
}

// The most frequent cause of the latest `of` signs, if `needed` of them have one; among equals the latest one.
SlowCause most_of(const std::deque<SlowCause>& signs, std::size_t of, std::size_t needed, bool with_doubtful) {
  std::array<std::size_t, kSlowCauses> seen{};
  std::size_t slow = 0;
  SlowCause most = SlowCause::none;
  for (std::size_t i = signs.size() - std::min(of, signs.size()); i < signs.size(); ++i) {
    const SlowCause sign = signs[i];
    if (sign == SlowCause::none || (doubtful(sign) && !with_doubtful)) {
      continue;
    }
    ++slow;
    ++seen[static_cast<std::size_t>(sign)];
    if (most == SlowCause::none || seen[static_cast<std::size_t>(sign)] >= seen[static_cast<std::size_t>(most)]) {
      most = sign;
    }
  }
  return slow >= needed ? most : SlowCause::none;
}

}  // namespace

// The most frequent cause of the latest intervals, the later one of two; none where they show too little.
SlowCause SlowWatch::sign_of(const Rank& rank) const {
  const SlowCause sure = most_of(rank.signs, options_.of, options_.needed, false);
  if (sure != SlowCause::none) {
    return sure;
  }
  if (!rank.signs.empty() && rank.signs.back() == SlowCause::paused) {
    return SlowCause::paused;
  }
  return most_of(rank.signs, options_.doubtful_of, options_.doubtful_needed, true);
}

std::vector<SlowChange> SlowWatch::update(std::span<const Diagnosis> ranks) {
  std::vector<SlowChange> changes;
  ranks_.resize(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Rank& rank = ranks_[i];
    rank.signs.push_back(ranks[i].share > options_.share ? ranks[i].cause : SlowCause::none);
    if (rank.signs.size() > std::max(options_.of, options_.doubtful_of)) {
      rank.signs.pop_front();
    }
    rank.calm = ranks[i].share <= options_.leaves_at * options_.share ? rank.calm + 1 : 0;
    const SlowCause sign = sign_of(rank);
    const SlowCause before = rank.cause;
    if (sign != SlowCause::none) {
      rank.cause = sign;
    } else if (rank.calm >= options_.well) {
      rank.cause = SlowCause::none;
    }
    if ((before == SlowCause::none) != (rank.cause == SlowCause::none)) {
      const bool slow = rank.cause != SlowCause::none;
      changes.push_back({static_cast<int>(i), slow, ranks[i], slow ? rank.cause : before});
      rank.signs.clear();
      if (slow) {
        rank.signs.push_back(rank.cause);
      }
    }
  }
  return changes;
}

double slowdown(const Diagnosis& found) noexcept {
  constexpr double kMost = 1e6;  // a measured share may be all of a step
  return found.share < 1 ? std::min(kMost, 1 / (1 - found.share)) : kMost;
}

int ExpelWatch::update(std::span<const Diagnosis> ranks, const SlowWatch& slow) {
  intervals_.resize(ranks.size());
  int slowest = -1;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const bool named = slow.cause(static_cast<int>(i)) != SlowCause::none && ranks[i].cause != SlowCause::none;
    const bool too_slow = named && slowdown(ranks[i]) >= slower_than_;
    intervals_[i] = too_slow ? intervals_[i] + 1 : 0;
    if (intervals_[i] >= kIntervals &&
        (slowest < 0 || ranks[i].share > ranks[static_cast<std::size_t>(slowest)].share)) {
      slowest = static_cast<int>(i);
    }
  }
  return slowest;
}

namespace {

std::string milliseconds(double seconds) { return format_number(seconds * 1e3, 3) + " ms"; }

std::string figures(SlowCause cause, const Diagnosis& seen) {
  const auto both = [&](const std::string& what) {
    return what + " " + milliseconds(seen.own) + " of a step, others " + milliseconds(seen.others);
  };
  switch (cause) {
    case SlowCause::late_compute: return both("late compute: it computes");
    case SlowCause::slow_encoding: return both("slow encoding: it encodes and sums for");
    case SlowCause::cores_shared: return both("cores taken by others: its threads wait for a core for");
    case SlowCause::slow_link_in: return both("slow link to it: it waits for each rank's frames for");
    case SlowCause::slow_link_out: return "slow link from it: its frames come late to all";
    case SlowCause::paused: return "paused: it did nothing for " + format_number(seen.own, 3) + " s";
    default: return "unknown";
  }
}

}  // namespace

std::string to_text(const RankSeen& seen, const Diagnosis& found) {
  std::string text = "step " + milliseconds(seen.step_seconds) + ", computes " + milliseconds(seen.compute_seconds) +
                     ", in finish() " + milliseconds(seen.wait_seconds) + ", idle " + milliseconds(seen.idle_seconds) +
                     ", codec " + milliseconds(seen.codec_seconds_per_byte * seen.bytes_in) + ", without a core " +
                     milliseconds(seen.delayed_seconds) + ", on one " + milliseconds(seen.cpu_seconds) +
                     ", longest gap " + milliseconds(seen.longest_gap) + "; waits for";
  for (const PeerWait& peer : seen.peers) {
    if (peer.rank >= 0 && peer.direct + peer.indirect > 0) {
      text += " rank " + std::to_string(peer.rank) + ": entry " + milliseconds(peer.entry) + ", frames " +
              milliseconds(peer.direct) + ", results " + milliseconds(peer.indirect) + ";";
    }
  }
  return text + " waited for " + milliseconds(found.wait_seconds) + ", " + std::string(to_string(found.cause));
}

std::string to_text(const SlowChange& change, double step_seconds) {
  const Diagnosis& seen = change.latest;
  const std::string waits = "other ranks wait " + milliseconds(seen.wait_seconds) + " of a step of " +
                            milliseconds(step_seconds) + " (" + format_number(100 * seen.share, 2) + "%) for it";
  if (!change.slow) {
    return "rank " + std::to_string(change.rank) +
           " is well again (it was slow: " + std::string(to_string(change.cause)) + "); " + waits;
  }
  return "rank " + std::to_string(change.rank) + " is slow; " + waits + "; " + figures(change.cause, seen);
}

}  // namespace gradwire::observe
