// Kernels over windows to which words do not come, or ranks, or that get another call.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/device_cuda.hpp"
#include "tests/gpu/windows_node.hpp"

namespace gradwire::gpu {
namespace {

constexpr std::uint32_t kRanks = 3;
constexpr std::uint32_t kFewBlocks = 2;
constexpr std::uint32_t kTestedSlot = 5008;  // bytes; the last words are fewer than a block's threads

const Case kInt8{CodecSpec::parse("int8"), DType::f32};

bool all_nan(const Memory& memory) {
  const Bytes bytes = memory.read();
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isnan(x); });
}

// Runs the test of windows. Rank 2 sees them as `change` makes it.
template <class Change>
void run_test(const WindowNode& node, const Change& change) {
  for (std::uint32_t rank = 0; rank < node.ranks(); ++rank) {
    kernels::WindowPlaces places = node.places(rank);
    if (rank == 2) {
      change(places);
    }
    kernels::check_windows(places, node.stream(rank));
  }
  synchronize();
}

void expect_found(Check& check, const WindowNode& node, const std::vector<std::uint32_t>& wanted,
                  const std::string& what) {
  for (std::uint32_t rank = 0; rank < node.ranks(); ++rank) {
    const std::uint32_t found = node.words(rank).tested;
    check.that(found == wanted[rank], what + ": rank " + std::to_string(rank) + " found " + std::to_string(found) +
                                          " words instead of " + std::to_string(wanted[rank]));
    check.that(node.words(rank).missing == 0, what + ": rank " + std::to_string(rank) + " waited in vain");
  }
}

double seconds_since(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

// Lets kernels wait for a while. The interpreter runs them only within calls.
void let_wait(cudaStream_t stream) {
  const auto begun = std::chrono::steady_clock::now();
  while (seconds_since(begun) < 0.1) {
    static_cast<void>(cudaStreamQuery(stream));
  }
}

void expect_given_up(Check& check, const WindowNode& node, std::uint32_t rank, std::uint32_t missing,
                     const Memory& result, const std::string& what) {
  const std::string here = what + ", rank " + std::to_string(rank);
  check.that(node.words(rank).missing == 1 + missing, here + ": the missing rank is " + std::to_string(missing) +
                                                          ", but the word is " +
                                                          std::to_string(node.words(rank).missing));
  check.that(all_nan(result), here + ": the results of a call that was given up are not NaN");
}

}  // namespace

void check_windows_test(Check& check, std::uint32_t ranks, std::uint32_t slot_bytes, std::uint32_t most_blocks) {
  const WindowNode node(ranks, slot_bytes, most_blocks);
  run_test(node, [](const kernels::WindowPlaces&) {});
  const std::vector<std::uint32_t> all(ranks, kernels::all_tested_words(node.places(0).shape));
  expect_found(check, node, all, "whole windows of " + std::to_string(ranks) + " ranks");
}

void check_lost_words(Check& check, std::uint64_t timeout_ns) {
  const auto nothing = [](const kernels::WindowPlaces&) {};
  {
    const WindowNode node(kRanks, kTestedSlot, kFewBlocks);
    const std::uint32_t all = kernels::all_tested_words(node.places(0).shape);
    run_test(node, [](kernels::WindowPlaces& places) { std::swap(places.window[0], places.window[1]); });
    expect_found(check, node, {all / 2, all / 2, all}, "windows 0 and 1, which rank 2 takes for each other");
  }
  {
    const WindowNode node(kRanks, kTestedSlot, kFewBlocks);
    const std::uint32_t all = kernels::all_tested_words(node.places(0).shape);
    const auto last = kernels::slot_at(node.places(1).shape, 1, 2) + kTestedSlot - 4;
    if (lose(node.places(0).window[1] + last, 4)) {
      run_test(node, nothing);
      expect_found(check, node, {all, all - kernels::kWindowRounds, all}, "a window that loses one word");
    }
  }
  WindowNode node(kRanks, kTestedSlot, kFewBlocks);
  node.timeout_ns = timeout_ns;
  const Memory elsewhere(Bytes(kernels::window_bytes(node.places(0).shape)));
  run_test(node, [&](kernels::WindowPlaces& places) { places.window[1] = elsewhere.frame(); });
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const std::string what = "a window that is elsewhere for rank 2, rank " + std::to_string(rank);
    check.that(node.words(rank).tested < kernels::all_tested_words(node.places(rank).shape), what + ": all words came");
    check.that(rank == 2 || node.words(rank).missing == 1 + 2, what + ": the missing rank");
  }
}

void check_missing_rank(Check& check, std::uint32_t count, std::uint64_t timeout_ns, std::uint64_t host_timeout_ns) {
  const WindowCall call{kInt8, count, false};
  for (const bool by_host : {false, true}) {
    const std::string what = by_host ? "a host gives up" : "a rank is missing";
    WindowNode node(kRanks, window_slot_bytes(call.codec, call.count, kRanks));
    node.timeout_ns = by_host ? host_timeout_ns : timeout_ns;
    const WindowRanks memory = make_window_ranks(call, kRanks);
    const auto begun = std::chrono::steady_clock::now();
    enqueue(node, call, 0, *memory[0]);
    enqueue(node, call, 2, *memory[2]);
    if (by_host) {
      let_wait(node.stream(0));
      node.words(2).abort = 1;
    }
    synchronize();
    check.that(seconds_since(begun) < 20, what + ": kernels took " + std::to_string(seconds_since(begun)) + " s");
    const std::uint32_t missing = by_host ? 2 : 1;
    expect_given_up(check, node, 0, missing, memory[0]->values, what);
    expect_given_up(check, node, 2, missing, memory[2]->values, what);
    // From here on nobody waits: neither a rank that comes too late, nor the others.
    node.timeout_ns = 0;
    const WindowRanks later = make_window_ranks(call, kRanks);
    enqueue(node, call, 1, *memory[1]);
    enqueue(node, call, 0, *later[0]);
    synchronize();
    expect_given_up(check, node, 1, missing, memory[1]->values, what + ", one comes too late");
    expect_given_up(check, node, 0, missing, later[0]->values, what + ", the next call");
  }
}

void check_late_rank(Check& check, std::uint32_t count) {
  const WindowCall call{kInt8, count, false};
  const WindowNode node(kRanks, window_slot_bytes(call.codec, call.count, kRanks));
  const WindowRanks memory = make_window_ranks(call, kRanks);
  enqueue(node, call, 0, *memory[0]);
  enqueue(node, call, 2, *memory[2]);
  let_wait(node.stream(0));
  enqueue(node, call, 1, *memory[1]);
  synchronize();
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const std::string what = "rank 1 is late, rank " + std::to_string(rank);
    check.that(node.words(rank).missing == 0, what + ": it was not waited for");
    check.that(!all_nan(memory[rank]->values), what + ": the results are NaN");
  }
}

void check_other_call(Check& check) {
  const WindowCall call{kInt8, 5 * 4096 + 77, false, Kind::plain, kFewBlocks};
  const WindowNode node(kRanks, window_slot_bytes(call.codec, call.count, kRanks), call.most_blocks);
  const WindowRanks memory = make_window_ranks(call, kRanks);
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    kernels::WindowJob job = node.job(call, rank, *memory[rank]);
    for (kernels::CallFields* fields : {&job.encode.call, &job.reduce.call, &job.decode.call}) {
      fields->bucket += rank == 1 ? 1 : 0;
    }
    kernels::all_reduce_windows(job, node.stream(rank));
  }
  synchronize();
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const std::string what = "another call of rank 1, rank " + std::to_string(rank);
    const kernels::DeviceStatus status = memory[rank]->words.status();
    check.that(status.bad_frames > 0 && status.nonfinite != 0, what + ": no frame is bad");
    check.that(status.first_bad == (rank == 1 ? 3U : 2U), what + ": the bad rank");
    check.that(all_nan(memory[rank]->values), what + ": the results are not NaN");
    check.that(node.words(rank).missing == 0, what + ": it waited in vain");
  }
}

}  // namespace gradwire::gpu
