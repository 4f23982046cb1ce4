// The question before a native sum: whether all ranks wait for it, and on the same terms.
#include <cstring>

#include "collective/host/lane_run.hpp"
#include "observe/record.hpp"

namespace gradwire::collective {

void LaneRun::post_native(Slot slot, View values) {
  Pending& pending = pending_.emplace_back();
  pending.slot = slot;
  pending.posted = observe::ticks();
  slots_[slot].receive = &pending.operation;
  ++slots_[slot].uses;
  executor_.transport_.post_all_reduce(pending.operation, values);
  ++open_operations_;
}

void LaneRun::ask(const Step& step) {
  std::byte* answer = open_slot(step).data();
  const auto terms = static_cast<float>(task_.terms.value_or(0));
  const Answer mine{task_.waits ? 1.0F : 0.0F, terms, terms * terms};
  std::memcpy(answer, mine.data(), slot_bytes(step));
  post_native(step.slot, View{answer, slot_bytes(step) / sizeof(float), DType::f32});
}

// Terms are equal where the square of their sum is as large as it can be, which every rank finds alike.
LaneRun::Answer LaneRun::answer(const Step& step) const {
  Answer all{};
  std::memcpy(all.data(), slots_[step.inputs.front()].buffer.bytes().data(),
              slot_bytes({.kind = StepKind::native_ask}));
  if (double{all[1]} * all[1] != double{all[2]} * executor_.transport_.world_size()) {
    throw Error(ErrorCode::mismatch,
                task_.name + ": ranks differ in the reduction, sum or mean, or some have a " +
                    "weight or a feedback buffer and some do not; every rank must make the same calls with " +
                    "the same options");
  }
  return all;
}

}  // namespace gradwire::collective
