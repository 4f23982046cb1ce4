// Reads the names of memory instructions, which have too many forms for a table.
#include "tests/support/ptx/module.hpp"
#include "tests/support/ptx/text.hpp"

namespace gradwire::ptx {

namespace {

// Returns the name from this list, which lives as long as the program, or nothing.
std::string_view known_update(std::string_view name) {
  for (const std::string_view known : {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc"}) {
    if (name == known) {
      return known;
    }
  }
  return "";
}

}  // namespace

bool memory_form(std::string_view name, MemoryForm& form) {
  std::vector<std::string_view> parts = split(name, '.');
  using Kind = MemoryForm::Kind;
  const std::string_view first = parts[0];
  if (first != "ld" && first != "ldu" && first != "st" && first != "atom" && first != "red" && first != "prefetch" &&
      first != "prefetchu") {
    return false;
  }
  form = {};
  form.kind = first == "ld"     ? Kind::load
              : first == "st"   ? Kind::store
              : first == "atom" ? Kind::atomic
              : first == "red"  ? Kind::reduction
                                : Kind::prefetch;
  const bool updates = form.kind == Kind::atomic || form.kind == Kind::reduction;
  form.scope = updates ? Scope::device : Scope::none;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string_view part = parts[i];
    if (part == "global" || part == "shared" || part == "local" || part == "param" || part == "const") {
      form.space = part == "global"   ? Space::global
                   : part == "shared" ? Space::shared
                   : part == "local"  ? Space::local
                   : part == "param"  ? Space::parameter
                                      : Space::constant;
    } else if (part == "cta" || part == "gpu" || part == "sys") {
      form.scope = part == "cta" ? Scope::block : part == "gpu" ? Scope::device : Scope::system;
    } else if (part == "acquire" || part == "release" || part == "acq_rel" || part == "relaxed") {
      form.acquires = part[0] == 'a';
      form.releases = part == "release" || part == "acq_rel";
      form.scope = form.scope == Scope::none ? Scope::device : form.scope;
    } else if (part == "volatile") {
      form.scope = Scope::system;
    } else if (part == "v2" || part == "v4") {
      form.vector = part == "v2" ? 2 : 4;
    } else if (const std::size_t bytes = type_bytes(part); bytes != 0 && i + 1 == parts.size()) {
      form.bytes = static_cast<std::uint8_t>(bytes);
      form.is_signed = part[0] == 's';
    } else if (const std::string_view update = updates && form.operation.empty() ? known_update(part) : "";
               !update.empty()) {
      form.operation = update;
    } else if (part != "weak" && part != "nc" && part != "ca" && part != "cg" && part != "cs" && part != "cv" &&
               part != "wb" && part != "wt" && part != "L1" && part != "L2" && part != "no_allocate" &&
               part != "evict_first" && part != "evict_last") {
      return false;
    }
  }
  const bool integer = parts.back()[0] != 'f';
  return form.kind == Kind::prefetch || (form.bytes != 0 && (!updates || (!form.operation.empty() && integer)));
}

}  // namespace gradwire::ptx
