// All metrics of a process for a server: each family once, with the samples of every rank.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "watch/aggregate.hpp"
#include "watch/http_table.hpp"

namespace gradwire::watch {

/// Samples have the same labels as in files: labels_of_rank() before their own.
[[nodiscard]] std::vector<Family> page_of(const Aggregate& aggregate, const ReaderState& reader,
                                          std::span<const ReplacedCalls> replaced, const std::string& part,
                                          const std::string& job = {});

/// Passes the families on in plain C. Families without samples are left out.
void hand_over(std::span<const Family> families, void* page, AddFamily add);

}  // namespace gradwire::watch
