#include <algorithm>

#include "session/parts/part.hpp"
#include "session/parts/scales.hpp"

namespace gradwire::session {

const PartTable& standard_parts() {
  static const auto* const table = new PartTable{make_scales};  // never destroyed: sessions are made at exit, too
  return *table;
}

void Parts::make(const PartInputs& inputs) {
  std::vector<std::unique_ptr<Part>> made;
  for (const MakePart& make : table_) {
    if (std::unique_ptr<Part> part = make(inputs)) {
      made.push_back(std::move(part));
    }
  }
  parts_ = std::move(made);
}

void Parts::add_to(StepComparison& comparison) {
  for (const auto& part : parts_) {
    if (ComparedPart* compared = part->compared()) {
      comparison.add(*compared);
    }
  }
}

std::string Parts::names() const {
  std::string names;
  for (const auto& part : parts_) {
    names += (names.empty() ? "" : ", ") + std::string(part->name());
  }
  return names;
}

bool Parts::due(std::uint64_t step) const {
  return std::any_of(parts_.begin(), parts_.end(), [=](const auto& part) {
    const ComparedPart* compared = part->compared();
    return compared != nullptr && compared->due(step);
  });
}

void Parts::after_step(const StepOutcome& outcome) {
  for (const auto& part : parts_) {
    part->after_step(outcome);
  }
}

std::string Parts::explain() const {
  std::string text;
  for (const auto& part : parts_) {
    text += part->explain();
  }
  return text;
}

}  // namespace gradwire::session
