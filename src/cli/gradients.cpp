#include "cli/gradients.hpp"

#include <algorithm>
#include <iterator>
#include <map>

#include "base/text.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli {
namespace {

std::string size_text(std::uint64_t count, DType dtype) {
  return std::to_string(count) + " elements of " + std::string(to_string(dtype));
}

}  // namespace

Gradients read_gradients(const std::vector<std::string>& files, std::optional<DType> raw) {
  Gradients all;
  std::map<std::string, std::size_t> places;
  for (const std::string& file : files) {
    record::Listing listing = record::list_gradients(file, raw);
    std::move(listing.left_out.begin(), listing.left_out.end(), std::back_inserter(all.notes));
    for (record::StoredGradient& gradient : listing.gradients) {
      if (gradient.count == 0) {
        continue;
      }
      const auto [found, is_new] = places.try_emplace(gradient.name, all.tensors.size());
      if (is_new) {
        all.tensors.push_back({.name = gradient.name,
                               .dtype = gradient.dtype,
                               .count = gradient.count,
                               .ndim = static_cast<std::uint32_t>(std::max<std::size_t>(1, gradient.shape.size())),
                               .steps = {}});
      }
      GradientSteps& tensor = all.tensors[found->second];
      if (tensor.count != gradient.count || tensor.dtype != gradient.dtype) {
        throw Error(ErrorCode::invalid_argument,
                    gradient.file.string() + ": tensor " + text::quote(gradient.name) + " has " +
                        size_text(gradient.count, gradient.dtype) + ", but " + size_text(tensor.count, tensor.dtype) +
                        " in " + tensor.steps.front().file.string() +
                        "; tensors of one name are steps of one tensor, so rename one of them, or measure them apart");
      }
      tensor.steps.push_back(std::move(gradient));
    }
  }
  if (all.tensors.empty()) {
    throw Error(ErrorCode::invalid_argument, files.front() + ": holds no gradient with an element; name another file");
  }
  all.recorded_steps =
      std::min_element(all.tensors.begin(), all.tensors.end(), [](const GradientSteps& a, const GradientSteps& b) {
        return a.steps.size() < b.steps.size();
      })->steps.size();
  return all;
}

}  // namespace gradwire::cli
