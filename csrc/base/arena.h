// Memory for weights, cache and scratch: anonymous pages, zeroed, aligned for huge pages, never through malloc.
#pragma once

#include <sys/mman.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace pyrt {

class Buffer {
 public:
  static constexpr size_t kHuge = size_t(2) << 20;  // bytes of a huge page

  Buffer() = default;
  explicit Buffer(size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    if (bytes > SIZE_MAX - kHuge) throw std::bad_alloc();
    mapped_ = bytes >= kHuge ? bytes + kHuge : bytes;
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base_ == MAP_FAILED) {
      base_ = nullptr;
      throw std::bad_alloc();
    }
    data_ = static_cast<uint8_t*>(base_);
    if (bytes >= kHuge) {
      data_ = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(base_) + kHuge - 1) & ~uintptr_t(kHuge - 1));
      allow_huge(true);
    }
  }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (base_) munmap(base_, mapped_);
  }

  // Whether the kernel may give huge pages for what is touched from now on, and make them of what was.
  void allow_huge(bool allowed) const {
    if (bytes_ >= kHuge) madvise(data_, bytes_, allowed ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }

  uint8_t* data() const { return data_; }
  size_t size() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void swap(Buffer& other) {
    std::swap(base_, other.base_);
    std::swap(mapped_, other.mapped_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  void* base_ = nullptr;
  size_t mapped_ = 0;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

// Memory that lives as long as the arena; allocations are zeroed and start on cache lines. Its parts lie together, so
// that small matrices share huge pages.
class Arena {
 public:
  uint8_t* allocate(size_t bytes) {
    if (bytes > SIZE_MAX - kLine) throw std::bad_alloc();
    bytes = (bytes + kLine - 1) / kLine * kLine;
    if (chunks_.empty() || bytes > chunks_.back().size() - used_) {
      chunks_.emplace_back(bytes > kChunk ? bytes : kChunk);
      used_ = touched_ = 0;
      if (slow_pages_ == kSlowPages) chunks_.back().allow_huge(false);
    }
    uint8_t* at = chunks_.back().data() + used_;
    used_ += bytes;
    allocated_ += bytes;
    touch();
    return at;
  }
  size_t allocated() const { return allocated_; }
  // When all is written: the kernel may make huge pages of it in its own time.
  void settle() const {
    for (const Buffer& chunk : chunks_) chunk.allow_huge(true);
  }

 private:
  // Touches the pages in use, for small ones instead if two huge ones in turn are slow. A huge page is zeroed in 0.1 to
  // 0.3 ms. But a virtual machine that has given its free huge pages back to the host (free page reporting) waits for each
  // 4 KB of them: 15 to 30 ms were seen, where small pages, which it keeps, took 20 times less.
  void touch() {
    for (; touched_ < used_ && slow_pages_ < kSlowPages; touched_ += Buffer::kHuge) {
      const auto begin = std::chrono::steady_clock::now();
      *static_cast<volatile uint8_t*>(chunks_.back().data() + touched_) = 0;
      const bool slow = std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(2);
      slow_pages_ = slow ? slow_pages_ + 1 : 0;
      if (slow_pages_ == kSlowPages)
        for (const Buffer& chunk : chunks_) chunk.allow_huge(false);
    }
  }

  static constexpr size_t kLine = 64, kChunk = size_t(64) << 20;  // untouched pages of a chunk cost nothing
  static constexpr int kSlowPages = 2;
  std::vector<Buffer> chunks_;
  size_t used_ = 0, touched_ = 0, allocated_ = 0;  // of the last chunk; of all
  int slow_pages_ = 0;                             // in turn; stays at kSlowPages
};

}  // namespace pyrt
