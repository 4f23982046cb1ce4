#include "record/safetensors.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "base/units.hpp"
#include "record/json_of_files.hpp"

namespace gradwire::record {
namespace {

using nlohmann::json;

constexpr std::size_t kMostTensorSides = 64;

std::optional<DType> dtype_of(std::string_view name) {
  for (const auto& [known, dtype] : {std::pair<std::string_view, DType>{"F32", DType::f32},
                                     {"F64", DType::f64},
                                     {"F16", DType::f16},
                                     {"BF16", DType::bf16}}) {
    if (name == known) {
      return dtype;
    }
  }
  return std::nullopt;
}

json read_header(GradientFile& file, std::uint64_t length) {
  std::string text(length, '\0');
  file.read(sizeof length, text.data(), text.size(), "its header");
  json header = parse_shallow(text);
  if (!header.is_object()) {
    file.refuse("header", "is no JSON as safetensors has it; the file is damaged, save it again with safetensors");
  }
  return header;
}

// Numbers from 0 on; nothing where there is something else, or another number of them than `wanted`, if that is named.
std::optional<std::vector<std::uint64_t>> numbers_in(const json& entry, const char* key,
                                                     std::optional<std::size_t> wanted = std::nullopt) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array() || found->size() > kMostTensorSides ||
      (wanted && found->size() != *wanted)) {
    return std::nullopt;
  }
  std::vector<std::uint64_t> numbers;
  for (const json& one : *found) {
    if (!one.is_number_unsigned()) {
      return std::nullopt;
    }
    numbers.push_back(one.get<std::uint64_t>());
  }
  return numbers;
}

}  // namespace

std::vector<StoredGradient> list_safetensors(GradientFile& file, std::vector<std::string>& left_out) {
  const auto length = file.number<std::uint64_t>(0, "the length of its header");
  const std::uint64_t rest = file.size() - sizeof length;
  if (length > rest || length > kMostJsonBytes) {
    file.refuse("byte 0", "the header claims " + std::to_string(length) + " bytes; the file has " +
                              std::to_string(rest) + " behind that number, and a header at most " +
                              format_bytes(kMostJsonBytes) + "; is it a safetensors file?");
  }
  const json header = read_header(file, length);
  const std::uint64_t values_at = sizeof length + length;
  const std::uint64_t values = file.size() - values_at;
  std::vector<StoredGradient> found;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      continue;
    }
    const std::string place = "tensor " + text::quote(text::beginning(name, 200));
    const auto shape = numbers_in(entry, "shape");
    const auto offsets = numbers_in(entry, "data_offsets", 2);
    const auto type = entry.is_object() ? entry.find("dtype") : entry.end();
    if (!shape || !offsets || type == entry.end() || !type->is_string()) {
      file.refuse(place, "needs dtype, shape and data_offsets; the file is damaged, save it again with safetensors");
    }
    const auto dtype = dtype_of(type->get_ref<const std::string&>());
    if (!dtype) {
      left_out.push_back(file.path().string() + ": " + place + " is left out: its type " +
                         text::quote(text::beginning(type->get_ref<const std::string&>(), 20)) +
                         " is no float that gradwire sends");
      continue;
    }
    const auto [begin, end] = std::pair(offsets->front(), offsets->back());
    const std::uint64_t count = elements_of(file, place, *shape, *dtype);
    if (begin > end || end > values || end - begin != count * element_bytes(*dtype)) {
      file.refuse(place, "data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) +
                             "] are not the bytes of its " + std::to_string(count) + " elements, or lie outside the " +
                             std::to_string(values) +
                             " bytes of values; the file is cut off or damaged, save it again");
    }
    found.push_back({.name = name,
                     .dtype = *dtype,
                     .shape = *shape,
                     .count = count,
                     .file = file.path(),
                     .offset = values_at + begin});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const StoredGradient& a, const StoredGradient& b) { return a.offset < b.offset; });
  return found;
}

}  // namespace gradwire::record
