// The transport's own all-reduce as a schedule of one lane. A weighted one agrees the sum of weights first.
#include "collective/collectives.hpp"

namespace gradwire::collective {

Schedule native_all_reduce(const Shape& shape, std::uint64_t count) {
  return {"native all-reduce", count == 0 ? 0U : 1U, [shape](std::uint64_t index) {
            Lane lane;
            const Slot slot = lane.add_slot();
            add_weight_exchange(lane, index, shape);
            lane.steps.push_back({.kind = StepKind::native_load, .slot = slot});
            lane.steps.push_back({.kind = StepKind::native_reduce, .slot = slot});
            lane.steps.push_back({.kind = StepKind::native_store, .slot = slot});
            return lane;
          }};
}

}  // namespace gradwire::collective
