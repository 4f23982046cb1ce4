#include "drop_in/node_kernel_choice.hpp"

#include <algorithm>

namespace gradwire::drop_in {

NodeKernelChoice::~NodeKernelChoice() {
  std::for_each(marks_.begin(), marks_.end(), [&](const Marks& marks) { drop(marks); });
}

void NodeKernelChoice::drop(const Marks& marks) noexcept {
  clock_.drop(marks.begin);
  clock_.drop(marks.end);
}

choice::EqualWays::Turn NodeKernelChoice::next(const Kind& kind) {
  auto found = kinds_.find(kind);
  if (found == kinds_.end()) {
    if (kinds_.size() == choice::EqualWays::kMostKinds) {
      return {};
    }
    found = kinds_.emplace(kind, kinds_.size()).first;
  }
  return ways_.next(found->second);
}

bool NodeKernelChoice::takes(const Kind& kind) const {
  const auto found = kinds_.find(kind);
  return found != kinds_.end() && ways_.second(found->second);
}

void NodeKernelChoice::time(const choice::EqualWays::Timed& call, void* stream, const std::function<void()>& make) {
  Marks marks{.call = call, .begin = clock_.mark(stream)};
  try {
    make();
    marks.end = clock_.mark(stream);
  } catch (...) {
    drop(marks);
    throw;
  }
  marks_.push_back(marks);
}

void NodeKernelChoice::say(std::span<std::uint32_t> words) {
  while (!marks_.empty() && clock_.reached(marks_.front().end)) {
    const Marks& marks = marks_.front();
    if (const auto seconds = clock_.seconds(marks.begin, marks.end)) {
      ways_.timed(marks.call, *seconds);
    }
    drop(marks);
    marks_.pop_front();
  }
  ways_.say(words);
}

}  // namespace gradwire::drop_in
