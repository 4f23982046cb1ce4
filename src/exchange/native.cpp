// The transport's own all-reduce as a schedule of one lane. If it asks, it is the blocking call where all ranks wait
// for it, and the nonblocking one otherwise; the answer also tells whether all ranks make the same call. Weights are
// summed after that, since before it a rank might wait for the weight of a rank whose call has none.
#include "exchange/collectives.hpp"

namespace gradwire::exchange {

Schedule native_all_reduce(const Shape& shape, std::uint64_t count, NativeOptions options) {
  return {
      "native all-reduce", count == 0 ? 0U : 1U, [shape, options](std::uint64_t index) {
        Lane lane;
        const Slot slot = lane.add_slot();
        std::vector<Slot> answer;
        if (options.asks || options.compares_terms) {
          answer.push_back(lane.add_slot());
          lane.instructions.push_back({.opcode = Opcode::native_ask, .slot = answer.front()});
        }
        add_weight_exchange(lane, index, shape, kBeforeFirst, answer);
        const std::vector<Slot> none;  // the answer travels beside the sum
        const bool first = options.asks || options.compares_first;
        lane.instructions.push_back(
            {.opcode = Opcode::native_load, .slot = slot, .inputs = options.asks ? answer : none});
        lane.instructions.push_back({.opcode = Opcode::native_reduce, .slot = slot, .inputs = first ? answer : none});
        lane.instructions.push_back({.opcode = Opcode::native_store, .slot = slot, .inputs = answer});
        return lane;
      }};
}

}  // namespace gradwire::exchange
