#include "tests/session/step_script.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace gradwire::session {

bool any(const std::vector<bool>& flags) { return std::find(flags.begin(), flags.end(), true) != flags.end(); }

std::vector<Script::Expected> Script::expected() const {
  std::vector<Expected> all;
  bool flushing = false;
  bool scaled = false;
  std::vector<std::uint64_t> from;
  for (const plan::Bucket& bucket : plan.buckets) {
    from.push_back(bucket.sync.mode == Sync::Mode::step ? ~0ULL : bucket.sync.from_step);
  }
  for (std::uint64_t step = 0; step < steps; ++step) {
    flushing = flushing || flush[step];
    scaled = scaled || scale[step];
    Expected one;
    bool looks = flushing || nonfinite == Nonfinite::skip || (nonfinite == Nonfinite::automatic && scaled);
    for (std::size_t b = 0; b < from.size(); ++b) {
      const bool precedes = plan.buckets[b].sync.mode == Sync::Mode::every && step + 1 == from[b];
      looks = looks || precedes;
      one.flushes.push_back(flushing || precedes);
      one.in_mode.push_back(step >= from[b]);
    }
    one.looks = looks;
    one.skipped = looks && any(bad[step]);
    one.as_usual = !one.skipped && !flushing;
    for (std::size_t b = 0; b < from.size(); ++b) {
      from[b] += one.skipped && plan.buckets[b].sync.mode == Sync::Mode::every && step + 1 == from[b] ? 1 : 0;
    }
    flushing = flushing && one.skipped;
    all.push_back(std::move(one));
  }
  return all;
}

Script make_script(std::mt19937& random, std::size_t ranks, bool may_fail) {
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  Script script;
  const std::uint32_t buckets = 1 + random() % 4;
  script.plan.buckets.resize(buckets);
  script.tensors = buckets + random() % 4;
  script.plan.tensors.resize(script.tensors);
  for (std::uint32_t i = 0; i < script.tensors; ++i) {
    script.plan.tensors[i].bucket = i < buckets ? i : random() % buckets;  // no bucket is empty
  }
  for (std::uint32_t b = 0; b < buckets; ++b) {
    script.plan.buckets[b].id = b;
    if (one_in(4)) {
      script.plan.buckets[b].sync = {.mode = Sync::Mode::every, .every = 2, .from_step = random() % 4};
    } else if (one_in(6)) {
      script.plan.buckets[b].sync = {.mode = Sync::Mode::async, .staleness = 1, .from_step = random() % 3};
    }
  }
  script.nonfinite = std::array{Nonfinite::automatic, Nonfinite::propagate, Nonfinite::skip}[random() % 3];
  script.in_call = one_in(2);
  const bool weighted = one_in(4);
  for (std::uint64_t step = 0; step < script.steps; ++step) {
    script.flush.push_back(one_in(4));
    script.scale.push_back(one_in(4));
    script.weight.push_back(weighted && (step == 0 || one_in(2)));
    std::vector<bool> bad(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      bad[rank] = one_in(3 * static_cast<unsigned>(ranks));
    }
    script.bad.push_back(std::move(bad));
  }
  if (may_fail && one_in(3)) {
    script.fails_after = random() % 200;
  }
  return script;
}

}  // namespace gradwire::session
