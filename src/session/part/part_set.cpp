#include "session/part/part_set.hpp"

#include <algorithm>
#include <sstream>

namespace gradwire::session {

void PartSet::make(const PartInputs& inputs, PartMaker::When when) {
  std::vector<std::unique_ptr<Part>> made(table_.size());
  for (std::size_t i = 0; i < table_.size(); ++i) {
    if (table_[i].when == when && parts_[i] == nullptr) {
      made[i] = table_[i].make(inputs);
    }
  }
  for (std::size_t i = 0; i < table_.size(); ++i) {
    if (made[i] != nullptr) {
      parts_[i] = std::move(made[i]);
    }
  }
  collect();
}

void PartSet::unmake() {
  for (std::size_t i = 0; i < table_.size(); ++i) {
    if (table_[i].when == PartMaker::When::with_plan) {
      parts_[i].reset();
    }
  }
  collect();
}

void PartSet::take_over(PartSet& before, PartMaker::When when) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (table_[i].when == when && parts_[i] != nullptr && before.parts_.at(i) != nullptr) {
      parts_[i]->take_over(*before.parts_[i]);
    }
  }
}

void PartSet::collect() {
  compared_.clear();
  tuners_.clear();
  timers_.clear();
  listeners_.clear();
  participants_.clear();
  result_readers_.clear();
  background_ = nullptr;
  const auto add = [](auto& to, auto* what) {
    if (what != nullptr) {
      to.push_back(what);
    }
  };
  for_each([&](Part& part) {
    add(compared_, part.compared());
    add(tuners_, part.tuner());
    add(timers_, part.timer());
    add(listeners_, part.listener());
    add(participants_, part.participant());
    add(result_readers_, part.result_reader());
    background_ = background_ != nullptr ? background_ : part.background();
  });
}

void PartSet::recollect(StepComparison& comparison) {
  collect();
  for (ComparedPart* compared : compared_) {
    comparison.add(*compared);
  }
}

std::string PartSet::names() const {
  std::string names;
  for_each([&](const Part& part) {
    if (part.has_name_compared()) {
      names += (names.empty() ? "" : ", ") + std::string(part.name());
    }
  });
  return names;
}

std::string PartSet::says() const {
  std::string lines;
  for_each([&](const Part& part) {
    if (const std::string line = part.says(); !line.empty()) {
      lines += (lines.empty() ? "" : "\n") + line;
    }
  });
  return lines;
}

void PartSet::agreed(Agreement agreement, const std::vector<std::string>& told) const {
  std::vector<std::istringstream> lines;
  lines.reserve(told.size());
  for (const std::string& text : told) {
    lines.emplace_back(text);
  }
  for_each([&](Part& part) {
    agreement.told.assign(told.size(), {});
    for (std::size_t rank = 0; !part.says().empty() && rank < told.size(); ++rank) {
      std::getline(lines[rank], agreement.told[rank]);
    }
    part.agreed(agreement);
  });
}

std::vector<SharedOut*> PartSet::shared_out() const {
  std::vector<SharedOut*> all;
  for_each([&](Part& part) {
    if (SharedOut* one = part.shared_out()) {
      all.push_back(one);
    }
  });
  return all;
}

bool PartSet::in_step() const {
  bool any = false;
  for_each([&](const Part& part) { any = any || part.in_step(); });
  return any;
}

table::RowSink* PartSet::begin_rows() const {
  RowLoader* loader = nullptr;
  for_each([&](Part& part) { loader = loader != nullptr ? loader : part.row_loader(); });
  return loader != nullptr ? &loader->begin_rows() : nullptr;
}

void PartSet::forget_rows() const {
  for_each([](Part& part) {
    if (RowLoader* loader = part.row_loader()) {
      loader->forget_rows();
    }
  });
}

bool PartSet::look_at_buckets(std::uint64_t step) const {
  return std::any_of(tuners_.begin(), tuners_.end(), [=](const Tuner* one) { return one->looks_at_buckets(step); });
}

std::uint64_t PartSet::revision() const noexcept {
  std::uint64_t all = 0;  // each revision only grows, so their sum changes with any of them
  for (const Tuner* tuner : tuners_) {
    all += tuner->revision();
  }
  return all;
}

bool PartSet::due(std::uint64_t step) const {
  return std::any_of(compared_.begin(), compared_.end(), [=](const ComparedPart* one) { return one->due(step); });
}

std::string PartSet::explain(PartMaker::When when) const {
  std::string text;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    text += table_[i].when == when && parts_[i] != nullptr ? parts_[i]->explain() : "";
  }
  return text;
}

}  // namespace gradwire::session
