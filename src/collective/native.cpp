// The transport's own all-reduce as a schedule of one lane. A weighted one agrees the sum of weights first. One that
// asks is the blocking call where all ranks wait for it, else the nonblocking one.
#include "collective/collectives.hpp"

namespace gradwire::collective {

Schedule native_all_reduce(const Shape& shape, std::uint64_t count, bool asks) {
  return {"native all-reduce", count == 0 ? 0U : 1U, [shape, asks](std::uint64_t index) {
            Lane lane;
            const Slot slot = lane.add_slot();
            add_weight_exchange(lane, index, shape);
            std::vector<Slot> answer;
            if (asks) {
              answer.push_back(lane.add_slot());
              lane.steps.push_back({.kind = StepKind::native_ask, .slot = answer.front()});
            }
            lane.steps.push_back({.kind = StepKind::native_load, .slot = slot, .inputs = answer});
            lane.steps.push_back({.kind = StepKind::native_reduce, .slot = slot, .inputs = answer});
            lane.steps.push_back({.kind = StepKind::native_store, .slot = slot});
            return lane;
          }};
}

}  // namespace gradwire::collective
