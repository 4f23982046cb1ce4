#include "gradwire/link.hpp"
#include "base/units.hpp"
#include "gradwire/error.hpp"

namespace gradwire {
namespace {

constexpr const char* kUnlimited = "unlimited";

}  // namespace

Link Link::parse(const std::string& text) {
  const auto comma = text.find(',');
  const std::string rate = text.substr(0, comma);
  Link link;
  try {
    link.bytes_per_second = rate == kUnlimited ? 0 : parse_rate(rate);
    if (comma != std::string::npos) {
      link.latency = parse_duration(text.substr(comma + 1));
    }
  } catch (const Error& error) {
    throw Error(error.code(), "link \"" + text + "\": " + error.what() + "; write for example 1Gbit/s or 1Gbit/s,50us");
  }
  return link;
}

std::string Link::to_string() const {
  std::string text = bytes_per_second > 0 ? format_rate(bytes_per_second) : kUnlimited;
  if (latency.count() > 0) {
    text.append(",").append(format_duration(latency));
  }
  return text;
}

}  // namespace gradwire
