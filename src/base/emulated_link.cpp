#include "base/emulated_link.hpp"

#include "base/environment.hpp"

namespace gradwire {
namespace {

constexpr std::string_view kMark = "emulated ";

}  // namespace

std::string emulated_link_of_job() { return environment("GRADWIRE_EMULATED_LINK").value_or(""); }

std::string over_emulated_link(std::string transport, const std::string& link) {
  if (link.empty() || !emulated_link_in(transport).empty()) {
    return transport;
  }
  return transport + (transport.empty() ? "" : ", ") + std::string(kMark) + link;
}

std::string_view emulated_link_in(std::string_view transport) {
  const std::size_t at = transport.find(kMark);
  return at == std::string_view::npos ? std::string_view() : transport.substr(at + kMark.size());
}

}  // namespace gradwire
