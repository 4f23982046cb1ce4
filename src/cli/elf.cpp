#include "cli/elf.hpp"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <optional>

namespace gradwire::cli {
namespace {

constexpr std::size_t kMostEntries = 4096;  // most entries of the dynamic section

class ElfFile {
 public:
  explicit ElfFile(const std::filesystem::path& program) : stream_(program, std::ios::binary) {
    Elf64_Ehdr header{};
    if (!read(0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64) {
      return;
    }
    for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
      Elf64_Phdr segment{};
      if (!read(header.e_phoff + i * header.e_phentsize, &segment, sizeof segment)) {
        segments_.clear();
        return;
      }
      segments_.push_back(segment);
    }
  }

  [[nodiscard]] const Elf64_Phdr* segment(std::uint32_t type) const {
    const auto found = std::find_if(segments_.begin(), segments_.end(),
                                    [&](const Elf64_Phdr& segment) { return segment.p_type == type; });
    return found == segments_.end() ? nullptr : &*found;
  }
  [[nodiscard]] bool any() const noexcept { return !segments_.empty(); }

  [[nodiscard]] std::vector<Elf64_Dyn> dynamic() {
    const Elf64_Phdr* place = segment(PT_DYNAMIC);
    std::vector<Elf64_Dyn> entries;
    for (std::uint64_t i = 0; place != nullptr && i < std::min(place->p_filesz / sizeof(Elf64_Dyn), kMostEntries);
         ++i) {
      Elf64_Dyn entry{};
      if (!read(place->p_offset + i * sizeof entry, &entry, sizeof entry) || entry.d_tag == DT_NULL) {
        break;
      }
      entries.push_back(entry);
    }
    return entries;
  }

  /// The offset in the file of the bytes that the program finds at `address`.
  [[nodiscard]] std::optional<std::uint64_t> offset_of(std::uint64_t address) const {
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type == PT_LOAD && address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz) {
        return segment.p_offset + (address - segment.p_vaddr);
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] std::string text_at(std::uint64_t offset) {
    std::array<char, 256> text{};
    stream_.clear();
    stream_.seekg(static_cast<std::streamoff>(offset));
    stream_.read(text.data(), text.size() - 1);
    return text.data();
  }

 private:
  bool read(std::uint64_t offset, void* to, std::size_t bytes) {
    stream_.clear();
    return stream_.seekg(static_cast<std::streamoff>(offset)) &&
           stream_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
  }

  std::ifstream stream_;
  std::vector<Elf64_Phdr> segments_;  // empty: no ELF program, or cut off
};

}  // namespace

bool is_script(const std::filesystem::path& program) {
  std::array<char, SELFMAG> magic{};
  std::ifstream stream(program, std::ios::binary);
  return stream.read(magic.data(), magic.size()).gcount() > 0 && std::memcmp(magic.data(), ELFMAG, SELFMAG) != 0;
}

bool is_32_bit(const std::filesystem::path& program) {
  std::array<char, EI_NIDENT> identity{};
  std::ifstream stream(program, std::ios::binary);
  return stream.read(identity.data(), identity.size()) && std::memcmp(identity.data(), ELFMAG, SELFMAG) == 0 &&
         identity[EI_CLASS] == ELFCLASS32;
}

bool statically_linked(const std::filesystem::path& program) {
  const ElfFile file(program);
  return file.any() && file.segment(PT_INTERP) == nullptr;
}

std::vector<std::string> needed_libraries(const std::filesystem::path& program) {
  ElfFile file(program);
  const std::vector<Elf64_Dyn> entries = file.dynamic();
  const auto strings =
      std::find_if(entries.begin(), entries.end(), [](const Elf64_Dyn& entry) { return entry.d_tag == DT_STRTAB; });
  const auto names = strings == entries.end() ? std::nullopt : file.offset_of(strings->d_un.d_ptr);
  std::vector<std::string> libraries;
  for (const Elf64_Dyn& entry : entries) {
    if (names && entry.d_tag == DT_NEEDED) {
      libraries.push_back(file.text_at(*names + entry.d_un.d_val));
    }
  }
  return libraries;
}

}  // namespace gradwire::cli
