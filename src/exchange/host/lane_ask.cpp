// The question before a native sum: whether all ranks wait for it, on the same terms and over the same elements.
#include <cstring>
#include <string>
#include <tuple>

#include "exchange/host/lane_run.hpp"
#include "observe/record.hpp"

namespace gradwire::exchange {

void LaneRun::post_native(Slot slot, View values) {
  Pending& pending = pending_.emplace_back();
  pending.slot = slot;
  pending.posted = observe::ticks();
  slots_[slot].receive = &pending.operation;
  ++slots_[slot].uses;
  executor_.transport_.post_all_reduce(pending.operation, values);
  ++open_operations_;
}

// Digits have four bits, so that sums of their squares are exact in f32 over worlds of 74,000 ranks. The digits of a
// 16-bit hash suffice, since counts and dtypes that differ by mistake are not chosen to collide.
LaneRun::Alike LaneRun::alike() const {
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio moves close counts apart
  constexpr unsigned kDigitBits = 4;
  Alike all{task_.terms.value_or(0)};
  const auto dtype = static_cast<std::uint64_t>(task_.call.codecs.first.dtype());
  std::uint64_t hash = ((task_.tensors.count() << 3U | dtype) * kGolden) >> 48U;
  for (std::size_t i = 1; i < all.size(); ++i) {
    all[i] = static_cast<std::uint8_t>(hash & ((1U << kDigitBits) - 1));
    hash >>= kDigitBits;
  }
  return all;
}

void LaneRun::ask(const Instruction& instruction) {
  std::byte* answer = open_slot(instruction).data();
  Answer mine{task_.waits ? 1.0F : 0.0F};
  const Alike numbers = alike();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto number = static_cast<float>(numbers[i]);
    mine[1 + 2 * i] = number;
    mine[2 + 2 * i] = number * number;
  }
  std::memcpy(answer, mine.data(), slot_bytes(instruction));
  post_native(instruction.slot, View{answer, slot_bytes(instruction) / sizeof(float), DType::f32});
}

// All ranks have the same number exactly where the square of the sum is the number of ranks times the sum of squares
// (Cauchy-Schwarz). Every rank finds the same.
LaneRun::Answer LaneRun::answer(const Instruction& instruction) const {
  Answer all{};
  std::memcpy(all.data(), slots_[instruction.inputs.front()].buffer.bytes().data(),
              slot_bytes({.opcode = Opcode::native_ask}));
  const auto equal = [&](std::size_t i) {
    return double{all[1 + 2 * i]} * all[1 + 2 * i] == double{all[2 + 2 * i]} * executor_.transport_.world_size();
  };
  if (!equal(0)) {
    throw Error(ErrorCode::mismatch,
                task_.name + ": ranks differ in the reduction, sum or mean, or some have a " +
                    "weight or a feedback buffer and some do not; every rank must make the same calls with " +
                    "the same options");
  }
  for (std::size_t i = 1; i < std::tuple_size_v<Alike>; ++i) {
    if (!equal(i)) {
      throw Error(ErrorCode::mismatch, task_.name + ": ranks differ in the elements, here " +
                                           std::to_string(task_.tensors.count()) + " of " +
                                           std::string(to_string(task_.call.codecs.first.dtype())) +
                                           "; every rank must make the same calls with the same counts and dtypes");
    }
  }
  return all;
}

}  // namespace gradwire::exchange
