# The CUDA back end: off unless asked for with -DTRACESTEP_CUDA=ON (preset `cuda`).
if(TRACESTEP_CUDA)
  file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backends/cuda/*.cpp
       ${CMAKE_SOURCE_DIR}/src/backends/cuda/*.cu)
  if(cuda_sources)
    if(NOT CMAKE_CUDA_ARCHITECTURES)  # named, because the build machine may have no GPU to ask
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 90-virtual)
    endif()
    find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin)
    enable_language(CUDA)
    set(CMAKE_CUDA_FLAGS_RELEASE "-O3")  # without NDEBUG, as in compiler.cmake
    set(CMAKE_CUDA_STANDARD 20)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know it
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    endif()
    find_package(CUDAToolkit REQUIRED)
    # fmt 9 takes nvcc for a compiler without constexpr.
    set(cuda_flags -DFMT_USE_CONSTEXPR=1 --expt-relaxed-constexpr
        -Xcompiler=-Wall,-Wextra)
    if(TRACESTEP_CUDA_FAST)  # kernels that may not spill are compiled as ever (capi.cmake)
      set(fast_sources ${cuda_sources})
      list(FILTER fast_sources INCLUDE REGEX "\\.cu$")
      list(FILTER fast_sources EXCLUDE REGEX "/hopper_[^/]*$")
      set_property(SOURCE ${fast_sources} APPEND PROPERTY COMPILE_OPTIONS --Ofast-compile=max)
    endif()
    include(capi)  # tracestep_attention
    tracestep_folder(backends/cuda EXCEPT attention
                     USES_PRIVATE tracestep_attention CUDA::cudart_static)
    target_compile_options(tracestep_backends_cuda PRIVATE
                           "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_flags}>")
    list(APPEND concrete_backends backends/cuda)
    list(APPEND tracestep_definitions TRACESTEP_WITH_CUDA)
    message(STATUS "CUDA ${CUDAToolkit_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
    tracestep_note("CUDA back end" ON "")
  else()
    tracestep_note("CUDA back end" OFF "src/backends/cuda holds no sources to compile")
  endif()
else()
  tracestep_note("CUDA back end" OFF "configure with --preset cuda (needs the CUDA toolkit)")
endif()
