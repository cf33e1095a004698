# Two images from one build: `weir` (the default) and `mock`, the demo's worker.
#   docker build -t weir .
#   docker build -t weir-mock --target mock .

FROM node:20-slim AS build
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY tsconfig.json ./
COPY extproc ./extproc
COPY envoy/mock-worker ./envoy/mock-worker
RUN node node_modules/typescript/bin/tsc -p extproc/tsconfig.build.json

FROM node:20-slim AS packages
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --omit=dev --no-audit --no-fund

FROM node:20-slim AS mock
ENV NODE_ENV=production
WORKDIR /app
COPY package.json ./
COPY --from=build /app/dist/envoy ./dist/envoy
USER node
STOPSIGNAL SIGTERM
ENTRYPOINT ["node", "dist/envoy/mock-worker/main.js"]
CMD ["--host", "0.0.0.0", "--port", "8101", "--model", "demo", "--engine", "vllm"]

FROM node:20-slim AS weir
ENV NODE_ENV=production
WORKDIR /app
COPY package.json LICENSE ./
COPY --from=packages /app/node_modules ./node_modules
COPY --from=build /app/dist/extproc ./dist/extproc
USER node
EXPOSE 9002 9190
STOPSIGNAL SIGTERM
# /healthz says that the process lives; whether it takes requests is /readyz, which must not restart it.
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 \
  CMD ["node", "-e", "fetch('http://127.0.0.1:9190/healthz').then(a => process.exit(a.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node", "dist/extproc/main.js"]
CMD ["serve", "--config", "/etc/weir/weir.yaml"]
