# SPDX-License-Identifier: MIT
# Instruction sets of the kernel files. Only these files are compiled for more than the
# baseline processor; src/kernels/kernels.c decides at run time which of them may run.
# -ffp-contract=fast: a * b + c as one rounding, which -std=c11 otherwise turns off.
set(MB_KERNEL_FLAGS -ffp-contract=fast)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set_source_files_properties(src/kernels/isa_avx2.c PROPERTIES COMPILE_OPTIONS
    "${MB_KERNEL_FLAGS};-mavx2;-mfma")
  set_source_files_properties(src/kernels/isa_avx512.c PROPERTIES COMPILE_OPTIONS
    "${MB_KERNEL_FLAGS};-mavx512f;-mavx512dq;-mavx512vl;-mavx512bw;-mfma;-mprefer-vector-width=512")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  set_source_files_properties(src/kernels/isa_neon.c PROPERTIES COMPILE_OPTIONS
    "${MB_KERNEL_FLAGS}")
endif()
