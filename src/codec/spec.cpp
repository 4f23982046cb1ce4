#include <algorithm>
#include <cmath>

#include "base/units.hpp"
#include "codec/registry.hpp"
#include "gradwire/error.hpp"

namespace gradwire {
namespace {

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view{}
                                         : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

[[noreturn]] void fail(std::string_view text, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "codec \"" + std::string(text) + "\": " + why);
}

std::uint8_t parse_values(std::string_view name, std::string_view text) {
  const codec::CodecEntry* entry = codec::find_codec(name == "fp32" ? "exact" : name);
  if (entry != nullptr) {
    return entry->id;
  }
  fail(text, "write one of " + codec::codec_names() + ", or topk(DENSITY)+CODEC such as topk(1%)+int8");
}

std::uint16_t parse_density(std::string_view density, std::string_view text) {
  try {
    const double kept = std::floor(4096 * parse_fraction(density) + 0.5);
    return static_cast<std::uint16_t>(std::clamp(kept, 1.0, 4096.0));
  } catch (const Error& error) {
    fail(text, error.what());
  }
}

}  // namespace

CodecSpec CodecSpec::parse(std::string_view text) {
  constexpr std::string_view kTopk = "topk(";
  CodecSpec spec;
  std::string_view rest = trim(text);
  if (rest.starts_with(kTopk)) {
    const auto close = rest.find(')');
    if (close == std::string_view::npos) {
      fail(text, "topk( has no closing bracket; write topk(1%)+int8");
    }
    spec.k = parse_density(rest.substr(kTopk.size(), close - kTopk.size()), text);
    rest = trim(rest.substr(close + 1));
    if (!rest.starts_with('+')) {
      fail(text, "topk needs a codec for the selected values; write topk(1%)+int8");
    }
    rest = trim(rest.substr(1));
  }
  spec.values = parse_values(rest, text);
  if (spec.k != 0 && spec.values == codec::kPacked.id) {
    fail(text, "the values that topk keeps do not shrink enough to be packed; write +exact");
  }
  return spec;
}

std::string CodecSpec::to_string() const {
  const codec::CodecEntry* entry = codec::find_codec(values);
  const std::string name = entry == nullptr ? "unknown(" + std::to_string(values) + ")" : std::string(entry->name);
  return k == 0 ? name : "topk(" + std::to_string(k) + "/4096)+" + name;
}

}  // namespace gradwire
